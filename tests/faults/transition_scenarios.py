"""For each transition a way to reach it, and what must stand afterwards.

`whole` is the end without a fault; `undone` the end after a crash before the transition's commit; `done` the end after
a crash behind it. Each time `drain` runs what is due.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings

from tests.testapp.agents import helper, safe, unsafe
from tests.testapp.delegating_agents import BOSS, boss
from tests.testapp.models import Effect
from turnkit_django import Agent, register
from turnkit_django.agents import registered
from turnkit_django.core.ids import new_delivery_id
from turnkit_django.engine import heartbeat, reconcile, runner
from turnkit_django.models import Conversation, Delivery, Message, ToolExecution, Turn, Wait
from turnkit_django.store import transitions
from turnkit_django.store.moves import STATEMENTS
from turnkit_django.store.records import AttemptEnd
from turnkit_django.testing import Crash, ScriptedModel, call, crash_at, text

hasty = Agent(name="hasty", model="openai/gpt-5-mini", tools=[safe, unsafe], timeout=timedelta(microseconds=1))


class NoQueue:
    """A queue that is down."""

    def send_wake(self) -> None:
        raise ConnectionError("no queue")

    note_reconcile = last_reconcile = send_wake

    def is_stopping(self) -> bool:
        return False


@dataclass(frozen=True)
class Ending:
    """What stands in the end: statuses of all turns and of all executions, and how many of the rest."""

    turns: tuple[str, ...] = ()
    executions: tuple[str, ...] = ()
    effects: int = 0
    messages: int = 0
    model_calls: int = 0
    unknown_calls: int = 0

    @classmethod
    def found(cls, model: ScriptedModel) -> Ending:
        turns = Turn.objects.order_by("pk")
        return cls(
            turns=tuple(turns.values_list("status", flat=True)),
            executions=tuple(ToolExecution.objects.order_by("turn", "ordinal").values_list("status", flat=True)),
            effects=Effect.objects.count(),
            messages=Message.objects.count(),
            model_calls=len(model.requests),
            unknown_calls=sum(turns.values_list("unknown_attempts", flat=True)),
        )


@dataclass
class World:
    """What a scenario acts on."""

    conversation: Conversation
    model: ScriptedModel
    turn: Turn = field(init=False)
    target: Turn = field(init=False)

    def submit(self) -> None:
        self.turn = self.conversation.submit("please")

    def run(self) -> None:
        assert runner.run_next()

    def die_at(self, point: str) -> None:
        """Leave the turn in the hands of a dead worker."""
        with pytest.raises(Crash), crash_at(point):
            self.run()

    def recover(self) -> None:
        turn = Turn.objects.get(pk=self.turn.pk)
        reconcile.recover(turn.pk, turn.claim_token or "", turn.attempts, is_dead=True)

    def cancel(self) -> None:
        self.turn.cancel()

    def submit_two(self) -> None:
        """The turn, behind a turn of another conversation that it may wait for."""
        self.target = helper.conversation().submit("first")
        self.submit()

    def join(self) -> None:
        self.submit_two()
        self.turn.wait_for(self.target)


@dataclass(frozen=True)
class Scenario:
    transition: str
    act: Callable[[World], object]
    whole: Ending
    undone: Ending
    done: Ending
    script: Callable[[], Any] = lambda: text("done")
    before: Callable[[World], object] = lambda world: None
    agent: Agent = helper
    has_queue: bool = True
    label: str = ""

    def __str__(self) -> str:
        return f"{self.transition}{f'-{self.label}' if self.label else ''}"

    def world(self, use_model: Callable[[Any], ScriptedModel], configure: Callable[[dict[str, Any]], None]) -> World:
        """Everything up to the moment of the fault."""
        if self.agent.name not in registered():
            register(self.agent)
        if not self.has_queue:
            configure({**getattr(settings, "TURNKIT", {}), "DISPATCHER": f"{__name__}.NoQueue"})
        world = World(self.agent.conversation(), use_model(self.script()))
        self.before(world)
        return world


def calls(tool: str) -> Callable[[], Any]:
    """A model that calls the tool once in each turn, however often it is asked."""
    return lambda: lambda request: text("done") if request.messages[-1]["role"] == "tool" else call(tool, {"n": 1})


def first(step: Any) -> Callable[[], Any]:
    return lambda: [step, *[text("done")] * 3]


def renewing() -> Any:
    def answer(request: Any) -> Any:
        assert heartbeat.renew_all()
        return text("done")

    return answer


ANSWERED = Ending(turns=("completed",), messages=2, model_calls=1)
CALLED = Ending(turns=("completed",), executions=("completed",), effects=1, messages=4, model_calls=2)
UNTOUCHED = Ending(turns=("pending",), messages=1)
LOST_REPLY = Ending(turns=("completed",), messages=2, model_calls=2, unknown_calls=1)
CALLED_LOST_REPLY = Ending(
    turns=("completed",), executions=("completed",), effects=1, messages=4, model_calls=3, unknown_calls=1
)
UNKNOWN = Ending(turns=("completed",), executions=("interrupted",), effects=1, messages=4, model_calls=2)
NOT_KNOWN_BUT_NOT_DONE = Ending(turns=("completed",), executions=("interrupted",), messages=4, model_calls=2)
FAILED = Ending(turns=("failed",), messages=1, model_calls=1)
CANCELLED = Ending(turns=("cancelled",), messages=1)
GAVE_UP = Ending(turns=("failed",), messages=1)
BOTH_ANSWERED = Ending(turns=("completed",) * 2, messages=4, model_calls=2)
JOINED = Ending(turns=("completed",) * 2, messages=5, model_calls=2)
JOINED_CANCELLED = Ending(turns=("cancelled", "completed"), messages=4, model_calls=1)
JOINED_LOST_REPLY = Ending(turns=("completed",) * 2, messages=5, model_calls=3, unknown_calls=1)
RETRIED = Ending(turns=("failed", "completed"), messages=2, model_calls=2)

JOINING = [
    Scenario(
        "open_waits",
        lambda world: world.turn.wait_for(world.target),
        before=World.submit_two,
        whole=JOINED,
        undone=BOTH_ANSWERED,
        done=JOINED,
    ),
    Scenario(
        "submit",
        lambda world: world.turn.submit(),
        before=lambda world: (
            setattr(world, "target", helper.conversation().submit("first")),
            setattr(world, "turn", world.conversation.prepare("please").wait_for(world.target)),
        ),
        whole=JOINED,
        undone=Ending(turns=("completed", "pending"), messages=3, model_calls=1),
        done=JOINED,
        label="of_a_waiter",
    ),
    Scenario(
        "claim_due",
        World.run,
        before=lambda world: (world.submit_two(), world.target.cancel(), world.turn.wait_for(world.target)),
        whole=JOINED_CANCELLED,
        undone=JOINED_CANCELLED,
        done=replace(JOINED_CANCELLED, unknown_calls=1),
        label="of_a_waiter",
    ),
    Scenario(
        "complete",
        World.run,
        before=World.join,
        whole=JOINED,
        undone=JOINED_LOST_REPLY,
        done=JOINED,
        label="of_a_target",
    ),
    Scenario(
        "cancel",
        lambda world: world.target.cancel(),
        before=World.join,
        whole=JOINED_CANCELLED,
        undone=JOINED,
        done=JOINED_CANCELLED,
        label="of_a_target",
    ),
    Scenario(
        "cancel",
        World.cancel,
        before=World.join,
        whole=Ending(turns=("completed", "cancelled"), messages=3, model_calls=1),
        undone=JOINED,
        done=Ending(turns=("completed", "cancelled"), messages=3, model_calls=1),
        label="of_a_waiter",
    ),
    Scenario(
        "give_up",
        lambda world: reconcile.run_pass(batch=10),
        before=World.join,
        agent=hasty,
        whole=Ending(turns=("completed", "failed"), messages=3, model_calls=1),
        undone=Ending(turns=("completed", "failed"), messages=3, model_calls=1),
        done=Ending(turns=("completed", "failed"), messages=3, model_calls=1),
        label="of_a_waiter",
    ),
    Scenario(
        "recount",
        lambda world: reconcile.run_pass(batch=10),
        before=lambda world: (world.join(), Wait.objects.all().delete()),
        whole=BOTH_ANSWERED,
        undone=BOTH_ANSWERED,
        done=BOTH_ANSWERED,
    ),
    Scenario(
        "retry",
        lambda world: world.turn.retry(),
        before=lambda world: (world.submit(), world.run()),
        script=first({"error": {"status": 400}}),
        whole=RETRIED,
        undone=FAILED,
        done=RETRIED,
    ),
]

ANSWERED_LATE = Ending(turns=("completed",), messages=2, model_calls=1, unknown_calls=1)
SENT = Ending(turns=("completed",) * 2, messages=4, model_calls=2)


def posted(world: World) -> Delivery:
    return world.conversation.post("please", key="k")


def delivered(world: World) -> Delivery:
    """In the transcript, and no turn is made for it yet."""
    delivery = posted(world)
    transitions.deliver(delivery.pk, draft=None)
    return delivery


def send_and_go_on(world: World) -> None:
    """A worker that sends a message to another conversation and then gives its turn back."""
    (one,) = transitions.claim(runner.holder())
    message = Delivery(
        id=new_delivery_id(), source=world.conversation, destination=helper.conversation(), key="k", text="hello"
    )
    held, _ = transitions.send_under_claim(one.claim, message)
    transitions.release(held, error=None, seconds=0, attempt=AttemptEnd.UNSENT, is_fault=False)


DELIVERING = [
    Scenario("send", posted, whole=ANSWERED, undone=Ending(), done=ANSWERED),
    Scenario(
        "send_under_claim",
        send_and_go_on,
        before=World.submit,
        whole=SENT,
        undone=ANSWERED_LATE,
        done=Ending(turns=("completed",) * 2, messages=4, model_calls=2, unknown_calls=1),
    ),
    Scenario(
        "deliver",
        lambda world: reconcile.run_pass(batch=10),
        before=posted,
        whole=ANSWERED,
        undone=ANSWERED,
        done=ANSWERED,
    ),
    Scenario(
        "continue_lane",
        lambda world: reconcile.run_pass(batch=10),
        before=delivered,
        whole=ANSWERED,
        undone=ANSWERED,
        done=ANSWERED,
    ),
    Scenario(
        "set_deliveries_aside",
        lambda world: transitions.set_deliveries_aside(
            [delivered(world).pk], error={"type": "X", "message": "x"}, seconds=1.5
        ),
        whole=ANSWERED,
        undone=ANSWERED,
        done=ANSWERED,
    ),
    Scenario(
        "claim_due",
        World.run,
        before=lambda world: (posted(world), reconcile.run_pass(batch=10)),
        whole=ANSWERED,
        undone=ANSWERED,
        done=ANSWERED_LATE,
        label="of_a_message",
    ),
    Scenario(
        "complete",
        World.run,
        before=lambda world: setattr(
            world, "turn", world.conversation.submit("please", callback=helper.conversation())
        ),
        whole=SENT,
        undone=Ending(turns=("completed",) * 2, messages=4, model_calls=3, unknown_calls=1),
        done=SENT,
        label="with_a_callback",
    ),
]


def asks_for(tool: str, arguments: dict[str, Any]) -> Callable[[], Any]:
    """A boss that makes the call once, and waits for every turn that a call has launched."""

    def answer(request: Any) -> Any:
        last = request.messages[-1]
        if request.model != BOSS:
            return text("ready")
        if last["role"] != "tool":
            return call(tool, arguments)
        told = json.loads(last["content"])
        return call("wait_for", {"turn_ids": [told["turn_id"]]}) if told.get("status") == "pending" else text("done")

    return lambda: answer


TASK = {"task": "write"}
DELEGATED = Ending(turns=("completed",) * 2, executions=("completed",), messages=6, model_calls=3)
AWAITED = Ending(turns=("completed",) * 2, executions=("completed",) * 2, messages=8, model_calls=4)

LAUNCHING = [
    Scenario(
        "launch",
        World.run,
        before=World.submit,
        agent=boss,
        script=asks_for("writer", TASK),
        whole=DELEGATED,
        undone=DELEGATED,
        done=DELEGATED,
    ),
    *(
        Scenario(
            move,
            World.run,
            before=World.submit,
            agent=boss,
            script=asks_for("launch_agent", {"agent_name": "writer", **TASK}),
            whole=AWAITED,
            undone=AWAITED,
            done=AWAITED,
        )
        for move in ("launch_detached", "join")
    ),
    Scenario(
        "start_child",
        lambda world: world.conversation.ask("please"),
        agent=boss,
        script=asks_for("writer", TASK),
        whole=DELEGATED,
        undone=Ending(turns=("stale",), executions=("cancelled",), messages=3, model_calls=1),
        done=Ending(turns=("stale",) * 2, executions=("interrupted",), messages=4, model_calls=1, unknown_calls=1),
    ),
]


def paused_by_then(answer: Any) -> Callable[[], Any]:
    """A model that is slow enough for somebody to pause the turn meanwhile."""

    def said(request: Any) -> Any:
        Turn.objects.get(pk=request.metadata["turn_id"]).pause()
        return answer

    return lambda: said


PAUSED = Ending(turns=("paused",), messages=1)
PAUSED_IN_TOOLS = Ending(turns=("paused",), executions=("pending",), messages=2, model_calls=1)

CONTROLLING = [
    Scenario(
        "pause", lambda world: world.turn.pause(), before=World.submit, whole=PAUSED, undone=ANSWERED, done=PAUSED
    ),
    Scenario(
        "resume",
        lambda world: world.turn.resume(),
        before=lambda world: (world.submit(), world.turn.pause()),
        whole=ANSWERED,
        undone=PAUSED,
        done=ANSWERED,
    ),
    Scenario(
        "acknowledge_pause",
        World.run,
        before=World.submit,
        script=paused_by_then(call("safe", {"n": 1})),
        whole=PAUSED_IN_TOOLS,
        undone=PAUSED_IN_TOOLS,
        done=PAUSED_IN_TOOLS,
    ),
    Scenario(
        "complete",
        World.run,
        before=World.submit,
        script=paused_by_then(text("done")),
        whole=replace(PAUSED, model_calls=1),
        undone=replace(PAUSED, model_calls=1, unknown_calls=1),
        done=replace(PAUSED, model_calls=1),
        label="of_a_paused",
    ),
    Scenario(
        "cancel",
        lambda world: world.turn.cancel(descendants="cascade"),
        before=lambda world: (world.submit(), world.run()),
        agent=boss,
        script=asks_for("writer", TASK),
        whole=Ending(turns=("cancelled",) * 2, executions=("interrupted",), messages=4, model_calls=1),
        undone=DELEGATED,
        done=Ending(turns=("cancelled",) * 2, executions=("interrupted",), messages=4, model_calls=1),
        label="of_a_tree",
    ),
]

SCENARIOS = [
    Scenario(
        "open_conversation",
        lambda world: helper.conversation(),
        whole=Ending(),
        undone=Ending(),
        done=Ending(),
    ),
    Scenario(
        "say",
        lambda world: world.conversation.say("hello"),
        whole=Ending(messages=1),
        undone=Ending(),
        done=Ending(messages=1),
    ),
    Scenario("start", World.submit, whole=ANSWERED, undone=Ending(), done=ANSWERED),
    Scenario(
        "start",
        lambda world: world.conversation.prepare("please"),
        whole=UNTOUCHED,
        undone=Ending(),
        done=UNTOUCHED,
        label="prepared",
    ),
    Scenario(
        "submit",
        lambda world: world.turn.submit(),
        before=lambda world: setattr(world, "turn", world.conversation.prepare("please")),
        whole=ANSWERED,
        undone=UNTOUCHED,
        done=ANSWERED,
    ),
    Scenario("cancel", World.cancel, before=World.submit, whole=CANCELLED, undone=ANSWERED, done=CANCELLED),
    Scenario(
        "cancel",
        World.cancel,
        before=lambda world: (world.submit(), world.die_at("tool_returned")),
        script=calls("unsafe"),
        whole=Ending(turns=("cancelled",), executions=("interrupted",), effects=1, messages=3, model_calls=1),
        undone=UNKNOWN,
        done=Ending(turns=("cancelled",), executions=("interrupted",), effects=1, messages=3, model_calls=1),
        label="with_a_started_tool",
    ),
    Scenario(
        "claim_due",
        World.run,
        before=World.submit,
        whole=ANSWERED,
        undone=ANSWERED,
        # A claim reserves the first model call; that it was not sent is known only to the dead process.
        done=Ending(turns=("completed",), messages=2, model_calls=1, unknown_calls=1),
    ),
    Scenario(
        "start_inline",
        lambda world: world.conversation.ask("please"),
        whole=ANSWERED,
        undone=Ending(),
        done=Ending(turns=("stale",), messages=1, unknown_calls=1),
    ),
    Scenario(
        "claim_inline",
        lambda world: world.turn.run(),
        before=lambda world: setattr(world, "turn", world.conversation.prepare("please")),
        whole=ANSWERED,
        undone=UNTOUCHED,
        done=Ending(turns=("stale",), messages=1, unknown_calls=1),
    ),
    Scenario(
        "renew", World.run, before=World.submit, script=renewing, whole=ANSWERED, undone=LOST_REPLY, done=LOST_REPLY
    ),
    Scenario(
        "store_reply",
        World.run,
        before=World.submit,
        script=calls("safe"),
        whole=CALLED,
        undone=CALLED_LOST_REPLY,
        done=CALLED,
        label="safe",
    ),
    Scenario(
        "store_reply",
        World.run,
        before=World.submit,
        script=calls("unsafe"),
        whole=CALLED,
        undone=CALLED_LOST_REPLY,
        done=CALLED,
        label="unsafe",
    ),
    Scenario(
        "start_tool",
        World.run,
        before=World.submit,
        script=calls("unsafe"),
        whole=CALLED,
        undone=CALLED,
        done=NOT_KNOWN_BUT_NOT_DONE,
    ),
    Scenario(
        "settle_tool",
        World.run,
        before=World.submit,
        script=calls("safe"),
        whole=CALLED,
        undone=CALLED,
        # The settling write reserves the next model call too.
        done=Ending(
            turns=("completed",), executions=("completed",), effects=1, messages=4, model_calls=2, unknown_calls=1
        ),
        label="safe",
    ),
    Scenario(
        "settle_tool",
        World.run,
        before=World.submit,
        script=calls("unsafe"),
        whole=CALLED,
        undone=UNKNOWN,
        done=Ending(
            turns=("completed",), executions=("completed",), effects=1, messages=4, model_calls=2, unknown_calls=1
        ),
        label="unsafe",
    ),
    Scenario("complete", World.run, before=World.submit, whole=ANSWERED, undone=LOST_REPLY, done=ANSWERED),
    Scenario(
        "fail",
        World.run,
        before=World.submit,
        script=lambda: [{"error": {"status": 400}}] * 2,
        whole=FAILED,
        undone=Ending(turns=("failed",), messages=1, model_calls=2, unknown_calls=1),
        done=FAILED,
    ),
    Scenario(
        "park",
        World.run,
        before=World.submit,
        script=first({"error": {"status": 429, "retry_after": 0}}),
        whole=Ending(turns=("completed",), messages=2, model_calls=2),
        undone=LOST_REPLY,
        done=Ending(turns=("completed",), messages=2, model_calls=2),
    ),
    Scenario(
        "release",
        World.run,
        before=World.submit,
        script=first(RuntimeError("a fault of the worker")),
        whole=LOST_REPLY,
        undone=LOST_REPLY,
        done=LOST_REPLY,
    ),
    Scenario(
        "recover",
        World.recover,
        before=lambda world: (world.submit(), world.die_at("responded")),
        whole=LOST_REPLY,
        undone=LOST_REPLY,
        done=LOST_REPLY,
    ),
    Scenario(
        "ready",
        lambda world: reconcile.run_pass(batch=10),
        before=lambda world: (world.submit(), world.run()),
        script=first({"error": {"status": 503, "retry_after": 0}}),
        whole=Ending(turns=("completed",), messages=2, model_calls=2),
        undone=Ending(turns=("completed",), messages=2, model_calls=2),
        done=Ending(turns=("completed",), messages=2, model_calls=2),
    ),
    Scenario(
        "give_up",
        lambda world: reconcile.run_pass(batch=10),
        before=World.submit,
        agent=hasty,
        whole=GAVE_UP,
        undone=GAVE_UP,
        done=GAVE_UP,
    ),
    Scenario(
        "set_aside",
        lambda world: transitions.set_aside(world.turn.pk, error={"type": "X", "message": "x"}, seconds=0),
        before=World.submit,
        whole=ANSWERED,
        undone=ANSWERED,
        done=ANSWERED,
    ),
    Scenario(
        "wake_due",
        lambda world: reconcile.run_pass(batch=10),
        before=lambda world: (world.submit(), transitions.unsent([world.turn.pk])),
        whole=ANSWERED,
        undone=ANSWERED,
        done=ANSWERED,
    ),
    *JOINING,
    *DELIVERING,
    *LAUNCHING,
    *CONTROLLING,
    Scenario("unsent", World.submit, has_queue=False, whole=ANSWERED, undone=ANSWERED, done=ANSWERED),
]


def _places(transition: str) -> list[str]:
    return ["before", "committed"] if transition in STATEMENTS else ["before", "written", "committed"]


CRASHES = [(scenario, place) for scenario in SCENARIOS for place in _places(scenario.transition)]
"""Each scenario with each place inside its transition where a process may die."""
