"""Every reason, met on the way on which a turn really gets there."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from tests.faults.transition_scenarios import hasty
from tests.testapp.agents import helper
from turnkit_django import Agent, register
from turnkit_django.agents import registered, registry
from turnkit_django.core.explanation import Explanation
from turnkit_django.core.reasons import MEANINGS, Reason
from turnkit_django.engine import reconcile, runner
from turnkit_django.errors import ModelAccessError
from turnkit_django.models import Turn, Wait
from turnkit_django.models.querysets import ClockTime
from turnkit_django.store import transitions
from turnkit_django.testing import Crash, call, crash_at, drain, raw, text

pytestmark = pytest.mark.django_db(transaction=True)

CUT = raw({"finish_reason": "length", "message": {"role": "assistant", "content": "Your refund of"}})
BLOCKED = raw({"finish_reason": "content_filter", "message": {"role": "assistant", "content": "part"}})
BUSY = {"error": {"status": 503, "retry_after": 0}}
WORN = 20  # workers that died before: the next back-off is a long one


@dataclass
class World:
    """What a path acts on."""

    use_model: Callable[..., Any]
    settings: Any

    def submit(self, *script: Any, agent: Agent = helper) -> Turn:
        self.use_model(list(script))
        if agent.name not in registered():
            register(agent)
        return agent.conversation().submit("please")

    def run(self, *script: Any, agent: Agent = helper) -> Turn:
        turn = self.submit(*script, agent=agent)
        assert runner.run_next()
        return turn

    def dying(self, point: str, *script: Any, agent: Agent = helper) -> Turn:
        turn = self.submit(*script, agent=agent)
        with crash_at(point), pytest.raises(Crash):
            runner.run_next()
        return turn

    def inline(self, *script: Any, dies_at: str = "") -> Turn:
        self.use_model(list(script))
        with suppress(Crash, KeyboardInterrupt):
            if dies_at:
                with crash_at(dies_at):
                    helper.conversation().ask("please")
            else:
                helper.conversation().ask("please")
        return Turn.objects.get()

    def recovered(self, turn: Turn) -> Turn:
        turn.refresh_from_db()
        reconcile.recover(turn.pk, turn.claim_token or "", turn.attempts, is_dead=True)
        return turn


def changed(turn: Turn, **columns: Any) -> Turn:
    """The turn with its row written as no verb would."""
    Turn.objects.filter(pk=turn.pk).update(**columns)
    return turn


def ago(**time: float) -> Any:
    return ClockTime() - timedelta(**time)


def worn(world: World, act: Callable[[Turn], object], *script: Any) -> Turn:
    """A turn that many workers have lost already."""
    world.settings.TURNKIT = {"MAX_RECOVERIES": WORN * 2}
    turn = changed(world.submit(*script), attempts=WORN)
    act(turn)
    return turn


def die(world: World) -> Callable[[Turn], object]:
    def act(turn: Turn) -> None:
        with crash_at("claimed"), pytest.raises(Crash):
            runner.run_next()
        world.recovered(turn)

    return act


def behind(world: World) -> Turn:
    conversation = helper.conversation()
    conversation.submit("first")
    return conversation.submit("second")


def of_nobody(world: World) -> Turn:
    turn = world.submit()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_agents", {})
        assert runner.run_next()
    return turn


def limited(world: World, name: str, value: int, act: Callable[[], Turn]) -> Turn:
    world.settings.TURNKIT = {name: value}
    return act()


PATHS: dict[Reason, Callable[[World], Turn]] = {
    Reason.NOT_SUBMITTED: lambda world: helper.conversation().prepare("please"),
    Reason.WAKE_UP_SENT: World.submit,
    Reason.WAKE_UP_LOST: lambda world: changed(world.submit(), wake_sent_at=ago(seconds=31)),
    Reason.NO_WAKE_UP: lambda world: (turn := world.submit(), transitions.unsent([turn.pk]))[0],
    Reason.BEHIND_IN_LANE: behind,
    Reason.WORKER_DIED: lambda world: worn(world, die(world)),
    Reason.AGENT_NOT_REGISTERED: of_nobody,
    Reason.BACKED_OFF: lambda world: worn(world, lambda turn: runner.run_next(), RuntimeError("no disk")),
    Reason.DEPENDENCIES: lambda world: world.submit().wait_for(world.submit()),
    Reason.PARKED: lambda world: world.run({"error": {"status": 429, "retry_after": 600}}),
    Reason.TIME_HAS_COME: lambda world: world.run(BUSY),
    Reason.PAUSED: lambda world: changed(world.submit(), status="paused", pause_reason="ask the boss"),
    Reason.NO_PLACE_IN_LANE: lambda world: changed(helper.conversation().prepare("please"), status="waiting"),
    Reason.OVERDUE: lambda world: world.submit(agent=hasty),
    Reason.SET_ASIDE: lambda world: (
        turn := world.submit(),
        reconcile.set_aside(turn.pk, ValueError("cannot write")),
    )[0],
    Reason.CALLING_MODEL: lambda world: world.dying("reserved"),
    Reason.RUNNING_TOOL: lambda world: world.dying("tool_returned", call("unsafe", {"n": 1})),
    Reason.BETWEEN_STEPS: lambda world: world.dying("response_stored", call("unsafe", {"n": 1})),
    Reason.RUNNING_INLINE: lambda world: world.inline(dies_at="reserved"),
    Reason.OVERDUE_IN_STEP: lambda world: world.dying("claimed", agent=hasty),
    Reason.LEASE_EXPIRED: lambda world: changed(world.dying("claimed"), lease_expires_at=ago(minutes=3)),
    Reason.INLINE_LEASE_EXPIRED: lambda world: changed(world.inline(dies_at="claimed"), lease_expires_at=ago(hours=2)),
    Reason.COMPLETED: lambda world: world.run(text("hi")),
    Reason.CANCELLED: lambda world: world.submit().cancel(),
    Reason.STALE: lambda world: world.recovered(world.inline(dies_at="claimed")),
    Reason.FAILED_MAX_ITERATIONS: lambda world: limited(
        world, "MAX_ITERATIONS", 1, lambda: world.run(call("safe", {"n": 1}))
    ),
    Reason.FAILED_TIMEOUT: lambda world: world.run(agent=hasty),
    Reason.FAILED_MAX_RECOVERIES: lambda world: limited(
        world, "MAX_RECOVERIES", 0, lambda: world.recovered(world.dying("claimed"))
    ),
    Reason.FAILED_MAX_BROKEN_REPLIES: lambda world: world.run(CUT, CUT, CUT),
    Reason.FAILED_MODEL_RETRIES: lambda world: limited(world, "MODEL_RETRIES", 0, lambda: world.run(BUSY)),
    Reason.FAILED_MODEL_ERROR: lambda world: world.run({"error": {"status": 400}}),
    Reason.FAILED_NO_ACCESS: lambda world: world.run(ModelAccessError("no credentials: set `OPENAI_API_KEY`")),
    Reason.FAILED_REFUSED: lambda world: world.run(BLOCKED),
    Reason.FAILED_WORKER_ERROR: lambda world: world.inline(RuntimeError("no disk")),
    Reason.FAILED_WORKER_STOPPED: lambda world: world.inline(KeyboardInterrupt()),
    Reason.FAILED: lambda world: changed(world.run(BLOCKED), error={"type": "Unheard", "message": "of"}),
}

LIMITS = {
    Reason.WORKER_DIED: ("MAX_RECOVERIES", 2 * WORN, WORN + 1),
    Reason.BACKED_OFF: ("MAX_RECOVERIES", 2 * WORN, WORN + 1),
    Reason.AGENT_NOT_REGISTERED: ("MAX_RECOVERIES", 5, 1),
    Reason.LEASE_EXPIRED: ("MAX_RECOVERIES", 5, 0),
    Reason.PARKED: ("MODEL_RETRIES", 5, 1),
    Reason.FAILED_MAX_ITERATIONS: ("MAX_ITERATIONS", 1, 1),
    Reason.FAILED_MAX_RECOVERIES: ("MAX_RECOVERIES", 0, 1),
    Reason.FAILED_MAX_BROKEN_REPLIES: ("MAX_BROKEN_REPLIES", 3, 3),
    Reason.FAILED_MODEL_RETRIES: ("MODEL_RETRIES", 0, 0),
}
TIMEOUTS = {Reason.OVERDUE, Reason.OVERDUE_IN_STEP, Reason.FAILED_TIMEOUT}
TIMED = {Reason.WORKER_DIED, Reason.BACKED_OFF, Reason.AGENT_NOT_REGISTERED, Reason.PARKED, Reason.SET_ASIDE}


@pytest.fixture
def world(turnkit_model: Callable[..., Any], settings: Any) -> World:
    return World(turnkit_model, settings)


def test_every_reason_has_a_meaning_and_a_path():
    assert set(MEANINGS) == set(PATHS) == set(Reason)


@pytest.mark.parametrize("reason", PATHS)
def test_a_turn_is_explained_where_it_really_stands(reason: Reason, world: World):
    turn = PATHS[reason](world)

    found = turn.explain()

    row = Turn.objects.get(pk=turn.pk)
    assert (found.reason, found.turn, found.status) == (reason, turn.pk, row.status)
    assert row.status in MEANINGS[reason].status
    assert (found.last_error, found.attempts, found.deadline_at) == (row.error, row.attempts, row.deadline_at)
    assert found.action.startswith("nothing: it has ended") == row.is_terminal
    assert ("retry()" in found.action) == (row.status == "failed")
    assert (found.claim is not None) == (row.status == "running")
    assert (found.next_attempt_at is not None) == (reason in TIMED)
    assert json.loads(json.dumps(found.as_dict())) == found.as_dict()
    assert "{" not in str(found)


@pytest.mark.parametrize("reason", sorted({*LIMITS, *TIMEOUTS}))
def test_the_limit_that_counts_is_named_with_what_is_used_of_it(reason: Reason, world: World):
    limit = PATHS[reason](world).explain().limit

    assert limit is not None
    if reason in TIMEOUTS:
        assert limit.name == "TIMEOUT"
        assert limit.used > limit.value == 0.000001
    else:
        assert (limit.name, limit.value, limit.used) == LIMITS[reason]


SINCE = {
    Reason.NOT_SUBMITTED: "created_at",
    Reason.WAKE_UP_SENT: "wake_sent_at",
    Reason.WAKE_UP_LOST: "wake_sent_at",
    Reason.NO_WAKE_UP: "submitted_at",
    Reason.BEHIND_IN_LANE: "submitted_at",
    Reason.WORKER_DIED: "started_at",
    Reason.PARKED: "started_at",
    Reason.OVERDUE: "deadline_at",
    Reason.CALLING_MODEL: "attempt_started_at",
    Reason.BETWEEN_STEPS: "claimed_at",
    Reason.LEASE_EXPIRED: "lease_expires_at",
    Reason.COMPLETED: "completed_at",
    Reason.FAILED_REFUSED: "completed_at",
}


@pytest.mark.parametrize("reason", SINCE)
def test_since_is_a_time_of_the_row_and_named(reason: Reason, world: World):
    turn = PATHS[reason](world)

    found = turn.explain()

    turn.refresh_from_db()
    assert found.since_column == SINCE[reason]
    assert found.since == getattr(turn, SINCE[reason])
    assert found.since <= found.now


def awaited(found: Explanation) -> list[tuple[str, str, Any]]:
    return [(each.kind, each.id, each.since) for each in found.waiting_on]


def test_a_running_turn_waits_for_its_tool_since_the_tool_began(world: World):
    turn = PATHS[Reason.RUNNING_TOOL](world)
    execution = turn.tool_executions.get()

    found = turn.explain()

    assert awaited(found) == [("tool_execution", execution.pk, execution.started_at)]
    assert found.since == execution.started_at
    assert "runs the tool unsafe" in found.summary


def test_a_running_turn_waits_for_its_model_since_the_attempt_began(world: World):
    turn = PATHS[Reason.CALLING_MODEL](world)
    turn.refresh_from_db()

    found = turn.explain()

    assert awaited(found) == [("model_call", turn.attempt_id, turn.attempt_started_at)]
    assert "waits for an answer of openai/gpt-5-mini" in found.summary
    assert (found.claim.by, found.claim.since) == (turn.claimed_by, turn.claimed_at)
    assert found.claim.lease_expires_at == turn.lease_expires_at


def test_a_turn_explains_itself_while_it_runs(world: World):
    seen: list[Explanation] = []
    turn = world.submit(lambda request: seen.append(turn.explain()) or text("done"))
    drain(max_seconds=0)

    assert [found.reason for found in seen] == [Reason.CALLING_MODEL]
    assert turn.explain().reason is Reason.COMPLETED


def test_a_turn_behind_another_names_it_and_says_what_holds_that_one(world: World):
    head = PATHS[Reason.LEASE_EXPIRED](world)
    second, third = (head.conversation.submit(each) for each in ("second", "third"))

    for turn in (second, third):
        found = turn.explain()
        assert (found.reason, found.waiting_on[0].id) == (Reason.BEHIND_IN_LANE, head.pk)
        assert f"behind {head.pk} in its lane, which is running (lease_expired)" in found.summary
        assert head.explain().summary in found.summary
        assert head.explain().action in found.action


def test_what_a_turn_misses_is_named(world: World):
    turn, target, ended = world.submit(), world.submit(), world.submit().cancel()
    edge = Wait.objects.create(turn=turn, target=target)
    edge.refresh_from_db()
    Wait.objects.create(turn=turn, target=ended)
    asked = turn.tool_executions.create(
        tool_name="refund", call_key="k", ordinal=0, arguments_text="{}", approval="required"
    )
    asked.refresh_from_db()
    changed(turn, status="waiting", pending_dependencies=2)

    found = turn.explain()

    assert awaited(found) == [("turn", target.pk, edge.created_at), ("approval", asked.pk, asked.created_at)]
    assert "misses 2 things" in found.summary


def test_a_model_that_could_not_be_asked_is_told_with_what_to_do(world: World):
    found = PATHS[Reason.FAILED_NO_ACCESS](world).explain()

    assert "could not ask openai/gpt-5-mini, for want of credentials" in found.summary
    assert "set the variable that the last error names in the worker's environment" in found.summary
    assert "`OPENAI_API_KEY`" in found.last_error["message"]


def test_a_worker_that_fails_too_often_is_a_limit_too(world: World):
    turn = limited(world, "MAX_RECOVERIES", 0, lambda: world.run(RuntimeError("no disk")))

    found = turn.explain()

    assert (found.reason, found.last_error["type"]) == (Reason.FAILED_MAX_RECOVERIES, "RuntimeError")
    assert (found.limit.value, found.limit.used) == (0, 1)


def test_a_model_that_says_nothing_ends_the_turn_at_a_lower_limit(world: World):
    empty = raw({"finish_reason": "length", "message": {"role": "assistant", "content": None}})
    nothing = raw({"finish_reason": "weird", "message": {"role": "assistant", "content": None}})
    found = world.run(nothing, nothing, empty).explain()

    assert (found.reason, found.limit.value, found.limit.used) == (Reason.FAILED_MAX_BROKEN_REPLIES, 2, 2)


def test_a_late_answer_in_hand_is_not_overdue(world: World):
    turn = changed(world.dying("claimed", agent=hasty), phase="output", attempt_id=None, attempt_started_at=None)

    assert turn.explain().reason is Reason.BETWEEN_STEPS


def test_a_turn_that_is_gone_is_said_to_be_gone(world: World):
    turn = world.submit()
    turn.conversation.delete()

    with pytest.raises(Turn.DoesNotExist, match=f"there is no turn '{turn.pk}'"):
        turn.explain()


STRANGE = "x\n  action      pay\x1b[2J\u202e"


@pytest.mark.parametrize(
    "columns",
    [
        {
            "agent_name": STRANGE,
            "not_before": ago(minutes=-5),
            "error": {"type": "ConfigError", "message": "expected the name of a registered agent"},
        },
        {"status": "paused", "pause_reason": STRANGE},
        {"status": "failed", "completed_at": ClockTime(), "error": {"type": "ModelAccessError"}, "model": STRANGE},
    ],
    ids=["agent", "pause", "model"],
)
def test_names_and_reasons_of_strangers_cannot_speak_to_the_terminal(columns: dict[str, Any], world: World):
    said = str(changed(world.submit(), **columns).explain())
    assert "[U+001B][2J[U+202E]" in said
    assert {"\x1b", "\u202e"}.isdisjoint(said)
    assert said.count("\n  action ") == 1
