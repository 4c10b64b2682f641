"""What becomes of a turn when a provider, a worker, a deploy or a row fails."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings

from tests.events.recording import heard, types
from tests.testapp.models import Effect
from turnkit_django import Agent, ToolContext, register, tool
from turnkit_django.agents import registry
from turnkit_django.engine import drain as engine_drain
from turnkit_django.engine import reconcile
from turnkit_django.errors import ModelAccessError
from turnkit_django.models import Turn
from turnkit_django.models.querysets import ClockTime
from turnkit_django.testing import Crash, assert_clean, call, crash_at, drain, raw, text

PERMANENT = [400, 401, 403, 404, 422]
keys: list[str] = []


@tool(recovery="replay_safe")
def safe(*, context: ToolContext) -> str:
    """Have one effect for each key."""
    keys.append(context.idempotency_key)
    Effect.objects.get_or_create(key=context.idempotency_key, defaults={"name": "safe"})
    return "done"


@tool
def unsafe(*, context: ToolContext) -> str:
    """Have an effect."""
    keys.append(context.idempotency_key)
    Effect.objects.create(key=context.idempotency_key, name="unsafe")
    return "done"


pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_agents", dict(registry._agents))
    keys.clear()


def agent(**options: Any) -> Agent:
    return register(Agent(name="probe", model="openai/gpt-5-mini", tools=[safe, unsafe], **options))


def make_due() -> None:
    """Let back-offs and parking be over."""
    Turn.objects.update(next_check_at=None)
    Turn.objects.filter(not_before__isnull=False).update(not_before=ClockTime())


def work(turn: Turn) -> Turn:
    """One pass over what is due now."""
    make_due()
    drain(max_seconds=0)
    turn.refresh_from_db()
    return turn


def run_out(turn: Turn) -> int:
    """Work until the turn ends; how many passes it took."""
    for passes in range(1, 30):
        if work(turn).is_terminal:
            return passes
    raise AssertionError(f"it never ends: {turn.status} {turn.error}")


def ended(turn: Turn) -> tuple[str, str, str]:
    return turn.status, turn.output_text, (turn.error or {}).get("type", "")


def outcomes(turn: Turn) -> list[str]:
    return list(turn.tool_executions.order_by("ordinal").values_list("status", flat=True))


# Transient errors of a provider

OVERLOADED = raw({"error": {"message": "overloaded", "code": 529}})


@pytest.mark.parametrize(
    ("failure", "status_code"),
    [
        ({"error": {"status": 429, "message": "slow down"}}, 429),
        ({"error": {"status": 408}}, 408),
        ({"error": {"status": 409}}, 409),
        ({"error": {"status": 500}}, 500),
        ({"error": {"status": 503}}, 503),
        (OVERLOADED, 529),
    ],
)
def test_a_transient_error_parks_a_background_turn_and_keeps_its_work(turnkit_model, failure, status_code: int):
    model = turnkit_model([call("safe"), failure, text("back")])
    turn = work(agent().conversation().submit("please"))
    assert (turn.status, turn.claim_token, turn.model_failures, turn.attempts) == ("waiting", None, 1, 0)
    assert turn.error["details"]["status_code"] == status_code
    assert (turn.iterations, turn.not_before is not None) == (1, True)
    assert work(turn).output_text == "back"
    assert (turn.status, turn.iterations, turn.model_failures, turn.error) == ("completed", 2, 0, None)
    assert (len(keys), len(model.requests)) == (1, 3)
    assert_clean(model=model)


@pytest.mark.parametrize(("wish", "seconds"), [(60, 60), (3600, 900)])
def test_a_parked_turn_waits_as_long_as_the_provider_asks_up_to_a_bound(turnkit_model, wish: int, seconds: int):
    model = turnkit_model([{"error": {"status": 429, "retry_after": wish}}])
    turn = agent().conversation().submit("please")
    for _ in range(2):
        drain(max_seconds=0)
    turn.refresh_from_db()
    stored = turn.not_before - turn.started_at
    assert (turn.status, len(model.requests)) == ("waiting", 1)
    assert timedelta(seconds=seconds) <= stored < timedelta(seconds=seconds + 60)
    assert_clean(model=model)


def test_parked_calls_do_not_use_up_the_limit_of_model_calls(turnkit_model):
    model = turnkit_model([{"error": {"status": 500}}] * 3 + [text("at last")])
    turn = agent(max_iterations=1).conversation().submit("please")
    run_out(turn)
    assert (ended(turn), turn.iterations) == (("completed", "at last", ""), 1)
    assert_clean(model=model)


@pytest.mark.parametrize("retries", [0, 2])
def test_after_the_allowed_retries_a_transient_error_fails_the_turn(turnkit_model, retries: int):
    model = turnkit_model([{"error": {"status": 503, "message": "down"}}] * 9)
    with override_settings(TURNKIT={"MODEL_RETRIES": retries}):
        turn = agent().conversation().submit("please")
        run_out(turn)
    assert (ended(turn), len(model.requests)) == (("failed", "", "TransientModelError"), 1 + retries)
    assert "down" in turn.error["message"]
    # The last one is the error itself; a person sees the earlier ones too.
    earlier = turn.error["details"].get("failed_attempts", [])
    assert [attempt["type"] for attempt in earlier] == ["TransientModelError"] * retries
    assert_clean(model=model)


def test_an_answer_between_two_errors_starts_the_count_again(turnkit_model):
    model = turnkit_model([{"error": {"status": 503}}, call("safe"), {"error": {"status": 503}}, text("ok")])
    with override_settings(TURNKIT={"MODEL_RETRIES": 1}):
        turn = agent().conversation().submit("please")
        run_out(turn)
    assert ended(turn) == ("completed", "ok", "")
    assert_clean(model=model)


def test_a_parked_turn_keeps_its_place_in_the_lane(turnkit_model):
    model = turnkit_model([{"error": {"status": 429, "retry_after": 900}}, text("first"), text("second")])
    conversation = agent().conversation()
    first, second = conversation.submit("1"), conversation.submit("2")
    drain(max_seconds=0)
    second.refresh_from_db()
    assert (second.status, second.started_at) == ("pending", None)
    run_out(first)
    run_out(second)
    assert (first.output_text, second.output_text) == ("first", "second")
    assert_clean(model=model)


# Permanent errors


@pytest.mark.parametrize("status", PERMANENT)
@pytest.mark.parametrize("start", ["ask", "submit"])
def test_a_permanent_error_fails_the_turn_at_once_and_names_the_cause(turnkit_model, status: int, start: str):
    model = turnkit_model([{"error": {"status": status, "message": f"because {status}"}}])
    turn = getattr(agent().conversation(), start)("please")
    run_out(turn)
    assert (ended(turn), turn.error["details"]) == (("failed", "", "PermanentModelError"), {"status_code": status})
    assert f"because {status}" in turn.error["message"]
    assert (len(model.requests), turn.unknown_attempts, turn.cost) == (1, 0, 0)
    assert_clean(model=model)


def test_a_missing_key_fails_the_turn_at_once_and_names_the_variable(monkeypatch: pytest.MonkeyPatch):
    for name in ("OPENAI_API_KEY", "OPENAI_API_BASE", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    turn = agent().conversation().ask("please")
    assert ended(turn) == ("failed", "", ModelAccessError.__name__)
    assert "`OPENAI_API_KEY`" in turn.error["message"]
    assert_clean()


# Faults of a worker


def test_an_unexpected_exception_releases_the_turn_with_a_back_off(turnkit_model):
    model = turnkit_model([RuntimeError("driver bug: sk-abcdefghijklmnop"), text("ok")])
    turn = work(agent().conversation().submit("please"))
    assert (turn.status, turn.attempts, turn.claim_token, turn.not_before is None) == ("pending", 1, None, False)
    assert (turn.error["type"], turn.error["message"]) == ("RuntimeError", "driver bug: [redacted]")
    assert (work(turn).status, turn.error, turn.unknown_attempts, turn.cost) == ("completed", None, 1, None)
    assert_clean(model=model)


@pytest.mark.parametrize("recoveries", [0, 2])
def test_a_turn_that_fails_every_worker_ends(turnkit_model, recoveries: int):
    model = turnkit_model([RuntimeError(f"bug {n}") for n in range(9)])
    with override_settings(TURNKIT={"MAX_RECOVERIES": recoveries}):
        turn = agent().conversation().submit("please")
        run_out(turn)
    assert (ended(turn), turn.attempts) == (("failed", "", "RuntimeError"), recoveries)
    assert (turn.error["details"], len(model.requests)) == ({"attempts": recoveries + 1}, recoveries + 1)
    assert_clean(model=model)


def test_an_unexpected_exception_fails_an_inline_turn(turnkit_model):
    model = turnkit_model([call("safe"), RuntimeError("bug")])
    turn = agent().conversation().ask("please")
    assert (ended(turn), outcomes(turn), turn.claim_token) == (("failed", "", "RuntimeError"), ["completed"], None)
    assert_clean(model=model)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize("start", ["ask", "submit"])
@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (RuntimeError("a\x00b\ud800"), "a\ufffdb\ufffd"),
        (Unspeakable(), "(its text could not be made: ValueError)"),
        ({"error": {"status": 400, "message": "a\x00b"}}, "HTTP 400: a\ufffdb"),
        (raw({"finish_reason": "a\x00b", "message": {"refusal": "c\x00d"}}), "blocked: c\ufffdd"),
    ],
    ids=["unstorable", "unspeakable", "from the provider", "refusal"],
)
def test_an_error_is_stored_whatever_its_text_is(turnkit_model, start: str, answer: Any, message: str):
    model = turnkit_model([answer] * 3)
    with override_settings(TURNKIT={"MAX_RECOVERIES": 1}):
        turn = getattr(agent().conversation(), start)("please")
        run_out(turn)
    assert (turn.status, message in turn.error["message"]) == ("failed", True), turn.error
    assert_clean(model=model)


def test_a_turn_of_a_missing_agent_waits_for_the_deploy_that_brings_it_back(turnkit_model):
    model = turnkit_model([text("here again")])
    probe = agent()
    turn = probe.conversation().submit("please")
    registry._agents.pop("probe")
    assert work(turn).status == "pending"
    assert (turn.error["type"], turn.attempts, "'probe'" in turn.error["message"]) == ("ConfigError", 1, True)
    register(probe)
    assert (work(turn).status, turn.iterations, turn.unknown_attempts) == ("completed", 1, 0)
    assert_clean(model=model)


def test_a_turn_of_an_agent_that_never_comes_back_fails_and_says_so(turnkit_model):
    probe = agent()
    turn = probe.conversation().submit("please")
    registry._agents.pop("probe")
    with override_settings(TURNKIT={"MAX_RECOVERIES": 2}):
        run_out(turn)
    assert (ended(turn), turn.iterations) == (("failed", "", "ConfigError"), 0)
    register(probe)
    assert_clean(model=turnkit_model([]))


def test_a_stored_call_to_a_tool_that_a_deploy_removed_is_answered(turnkit_model):
    model = turnkit_model([call("unsafe"), text("ok")])
    turn = agent().conversation().submit("please")
    with crash_at("response_stored"), pytest.raises(Crash):
        drain()
    register(Agent(name="probe", model="openai/gpt-5-mini", tools=[safe]))
    run_out(turn)
    execution = turn.tool_executions.get()
    assert (turn.status, execution.error["type"], keys) == ("completed", "UnknownTool", [])
    assert_clean(model=model)


# Deaths of a worker, simulated in process


@pytest.mark.parametrize(
    ("point", "name", "calls", "ran", "status"),
    [
        ("claimed", "unsafe", 2, 1, "completed"),
        ("reserved", "unsafe", 2, 1, "completed"),
        ("responded", "unsafe", 3, 1, "completed"),
        ("response_stored", "unsafe", 2, 1, "completed"),
        ("tool_started", "unsafe", 2, 0, "interrupted"),
        ("tool_started", "safe", 2, 1, "completed"),
        ("tool_returned", "unsafe", 2, 1, "interrupted"),
        ("tool_returned", "safe", 2, 2, "completed"),
        ("result_stored", "unsafe", 2, 1, "completed"),
        ("result_stored", "safe", 2, 1, "completed"),
    ],
)
def test_after_a_death_a_turn_goes_on_where_it_stood(turnkit_model, point, name, calls: int, ran: int, status: str):
    answers = {1: call(name), 2: text("done")}
    seen: list[list[Any]] = []

    def answer(request: Any) -> Any:
        seen.append(list(request.messages))
        return answers[2] if any(message["role"] == "tool" for message in request.messages) else answers[1]

    model = turnkit_model(answer)
    turn = agent().conversation().submit("please")
    with crash_at(point), pytest.raises(Crash):
        drain()
    run_out(turn)
    assert (ended(turn), outcomes(turn), len(keys)) == (("completed", "done", ""), [status], ran)
    assert (len(model.requests), Effect.objects.count(), len(set(keys))) == (calls, ran and 1, ran and 1)
    assert turn.messages.filter(role="tool").count() == 1
    assert all(each in (seen[0], seen[-1]) for each in seen), "a request changed over the death"
    assert_clean(model=model)


def test_a_tool_that_may_be_repeated_keeps_its_key_over_two_deaths(turnkit_model):
    model = turnkit_model([call("safe"), text("done")])
    turn = agent().conversation().submit("please")
    for _ in range(2):
        make_due()
        with crash_at("tool_returned"), pytest.raises(Crash):
            drain()
    run_out(turn)
    assert (turn.status, len(keys), len(set(keys)), Effect.objects.count()) == ("completed", 3, 1, 1)
    assert (turn.attempts, turn.tool_executions.count()) == (2, 1)
    assert_clean(model=model)


def test_calls_that_a_dead_worker_had_not_started_run_once(turnkit_model):
    model = turnkit_model([[call("unsafe"), call("unsafe"), call("safe")], text("done")])
    turn = agent().conversation().submit("please")
    with crash_at("tool_returned", nth=2), pytest.raises(Crash):
        drain()
    run_out(turn)
    assert (outcomes(turn), len(keys)) == (["completed", "interrupted", "completed"], 3)
    assert_clean(model=model)


def test_a_batch_that_a_death_cut_in_two_is_completed_call_by_call(turnkit_model):
    """B29: what ran does not run again, what was not heard of does, and the model is asked when all are there."""
    model = turnkit_model([[call("safe", id=f"c{n}") for n in (1, 2, 3)], text("done")])
    turn = agent().conversation().submit("please")
    with crash_at("tool_returned", nth=2), pytest.raises(Crash):
        drain()
    assert (outcomes(turn), len(model.requests)) == (["completed", "running", "pending"], 1)
    run_out(turn)
    rows = list(turn.tool_executions.order_by("ordinal"))
    assert [keys.count(f"turnkit:tool:{row.pk}") for row in rows] == [1, 2, 1]
    results = [message["tool_call_id"] for message in model.requests[1].messages if message["role"] == "tool"]
    assert (ended(turn), results, len(model.requests)) == (("completed", "done", ""), ["c1", "c2", "c3"], 2)
    assert_clean(model=model)


@pytest.mark.django_db(transaction=True)
def test_an_inline_turn_whose_process_died_becomes_stale_and_its_open_calls_are_closed_once(turnkit_model):
    model = turnkit_model([[call("safe"), call("unsafe"), call("safe")]])
    conversation = agent().conversation()
    with crash_at("tool_returned", nth=2), pytest.raises(Crash):
        conversation.ask("please")
    Turn.objects.update(lease_expires_at=ClockTime() - timedelta(seconds=1))
    with heard() as events:
        assert [reconcile.run_pass(batch=10).recovered for _ in range(2)] == [1, 0]
    turn = conversation.turns.get()
    assert (ended(turn), outcomes(turn)) == (("stale", "", "WorkerDied"), ["completed", "interrupted", "cancelled"])
    results = turn.messages.filter(role="tool").order_by("sequence")
    _, second, third = (message.content[0]["text"] for message in results)
    assert ("effect is unknown" in second, "did not run" in third) == (True, True)
    assert [message.tool_execution for message in results] == list(turn.tool_executions.order_by("ordinal"))
    told = ["tool_call.interrupted", "tool_call.skipped", "message.created", "message.created", "turn.stale"]
    assert sorted(types(events)) == sorted(told)
    assert conversation.ask("again").status == "completed"
    assert_clean(model=model)


@pytest.mark.django_db(transaction=True)
def test_the_process_of_an_inline_turn_that_became_stale_meanwhile_changes_nothing(turnkit_model):
    @tool
    def outlast() -> str:
        """Take longer than the lease lives, while maintenance looks."""
        Turn.objects.update(lease_expires_at=ClockTime() - timedelta(seconds=1))
        assert reconcile.run_pass(batch=10).recovered == 1
        return "late"

    slow = register(Agent(name="slow", model="openai/gpt-5-mini", tools=[outlast, unsafe]))
    model = turnkit_model([[call("outlast"), call("unsafe")]])
    conversation = slow.conversation()
    with heard() as events:
        turn = conversation.ask("please")
    assert (ended(turn), outcomes(turn), keys) == (("stale", "", "WorkerDied"), ["interrupted", "cancelled"], [])
    assert ("turn.completed" in types(events), types(events).count("turn.stale")) == (False, 1)
    assert (turn.messages.filter(role="tool").count(), len(model.requests)) == (2, 1)
    assert turn.tool_executions.first().result is None
    assert_clean(model=model)


def test_a_prepared_turn_never_becomes_stale(turnkit_model):
    turnkit_model([text("at last")])
    turn = agent().conversation().prepare("later")
    Turn.objects.update(created_at=ClockTime() - timedelta(days=400))
    assert reconcile.run_pass(batch=10).total == 0
    assert turn.run().output_text == "at last"


def test_a_live_lease_is_left_alone(turnkit_model):
    turnkit_model([text("hi")])
    turn = agent().conversation().submit("please")
    with crash_at("reserved"), pytest.raises(Crash):
        drain()
    assert reconcile.run_pass(batch=10).total == 0
    turn.refresh_from_db()
    assert turn.status == "running"


# Poison


@pytest.mark.parametrize("scope", ["NEW.status <> OLD.status", "true"], ids=["a move", "any write"])
def test_a_row_that_cannot_be_handled_stops_no_other(turnkit_model, scope: str):
    model = turnkit_model([text("hi"), text("ho")])
    probe = agent()
    turns = [probe.conversation().submit("please") for _ in range(2)]
    for _ in turns:
        with crash_at("claimed"), pytest.raises(Crash):
            engine_drain.run_due()
    oldest = Turn.objects.order_by("claimed_at").first()
    Turn.objects.filter(pk=oldest.pk).update(lease_expires_at=ClockTime() - timedelta(seconds=9))
    Turn.objects.exclude(pk=oldest.pk).update(lease_expires_at=ClockTime() - timedelta(seconds=1))
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.id = '{oldest.pk}' "
            f"AND {scope} THEN RAISE EXCEPTION 'poisoned'; END IF; RETURN NEW; END $$;"
            "CREATE TRIGGER poison BEFORE UPDATE ON turnkit_turn FOR EACH ROW EXECUTE FUNCTION poison()"
        )
    counts = reconcile.run_pass(batch=10)
    assert (counts.recovered, counts.errors) == (1, 1)
    oldest.refresh_from_db()
    if scope != "true":
        assert ("poisoned" in oldest.error["message"], oldest.next_check_at is not None) == (True, True)
        assert reconcile.run_pass(batch=10).errors == 0, "it is looked at again later, not in every pass"
    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER poison ON turnkit_turn; DROP FUNCTION poison()")
    for turn in turns:
        make_due()
        run_out(turn)
    assert {turn.status for turn in turns} == {"completed"}
    assert_clean(model=model)
