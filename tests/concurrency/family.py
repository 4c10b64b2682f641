"""Rows of one family of turns, and the moves that meet in them, each with the locks it takes.

In the words of `Move.locks`, "GRAPH" and "ROOT" are the keys, "lane" and "lane:x" the rows of conversations, and the
rest the rows of turns, calls and messages. "~x" is taken if nobody has it, and passed over otherwise. "=x" is a key of
a message: whoever stores it keeps those back that store it too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any

from tests.testapp.agents import helper, safe, unsafe
from tests.testapp.delegating_agents import BOSS, writer
from turnkit_django import Agent, register
from turnkit_django.core import ids
from turnkit_django.core.states import Phase, ToolState
from turnkit_django.core.usage import Usage
from turnkit_django.engine import drafts, runner
from turnkit_django.models import Conversation, Delivery, ToolExecution, Turn
from turnkit_django.store import transitions
from turnkit_django.store.claims import Claim, Holder, Reservation
from turnkit_django.store.records import AttemptEnd, NewCall, NewChild, Next, Reply, Settlement
from turnkit_django.tools import LaunchAgent, SendMessage, WaitFor

elder = register(
    Agent(
        name="elder",
        model=BOSS,
        tools=[safe, unsafe, LaunchAgent, WaitFor, SendMessage],
        sub_agents=[writer],
    )
)
LEASE = 3600
ERROR = {"type": "X", "message": "x", "details": {}}


@dataclass
class Family:
    """The rows by name.

    Attributes:
        held: The claim on the turn in the middle.
        calls: Its open calls, by tool.
    """

    turns: dict[str, Turn] = field(default_factory=dict)
    lanes: dict[str, Conversation] = field(default_factory=dict)
    deliveries: dict[str, Delivery] = field(default_factory=dict)
    calls: dict[str, str] = field(default_factory=dict)
    held: Claim = None  # type: ignore[assignment]

    def id(self, name: str) -> str:
        return self.turns[name].pk

    def add(self, name: str, turn: Turn) -> Turn:
        self.turns[name], self.lanes[f"lane:{name}"] = turn, turn.conversation
        return turn

    def draft(self) -> Turn:
        """A turn that is not stored yet, for the lane in the middle."""
        return drafts.new_turn(self.lanes["lane"], {})


@dataclass(frozen=True)
class Move:
    transition: str
    act: Callable[[Family], object]
    locks: str = ""
    of: str = ""

    def __str__(self) -> str:
        return f"{self.transition}{f'-{self.of}' if self.of else ''}"

    @property
    def taken(self) -> set[str]:
        """What it has locked when it has written."""
        return {name.lstrip("~") for name in self.locks.split()}

    @property
    def awaited(self) -> set[str]:
        """What it waits for if somebody else has it."""
        return {name for name in self.locks.split() if not name.startswith("~")}

    def meets(self, other: Move) -> bool:
        return bool(self.taken & other.taken)

    def may_cross(self, other: Move) -> bool:
        """Whether both wait for locks of two kinds, of which each might hold one."""
        return len({_kind(name) for name in self.awaited & other.awaited}) > 1

    def waits_for(self, other: Move) -> bool:
        return bool(self.awaited & other.taken)

    @property
    def passes_over(self) -> bool:
        """Whether it looks for work, and takes what it gets."""
        return not self.awaited


def _kind(lock: str) -> str:
    """Locks of one kind are taken in one statement, by id."""
    if lock in {"GRAPH", "ROOT", "calls"}:
        return lock
    return "lane" if lock.startswith("lane") else "delivery" if lock in {"letter", "note"} else "turn"


# Worlds


def holder(count: int = 1) -> Holder:
    """A worker of this process, so that `drain` takes over what it leaves."""
    return Holder(f"{runner.worker_name()}:1", LEASE, tuple(ids.new_token() for _ in range(count)))


def claim_next() -> Claim:
    (one,) = transitions.claim(holder())
    return one.claim


def reply(*calls: NewCall) -> Reply:
    parts: list[Any] = [
        {"type": "tool_call", "id": call.tool_call_id, "key": call.call_key, "name": call.tool_name}
        | {"arguments": call.arguments_text}
        for call in calls
    ]
    return Reply(parts or [{"type": "text", "text": "hi"}], "openai", Usage(), Decimal(0), {})


def new_call(tool: str, ordinal: int, arguments: str) -> NewCall:
    key = f"{tool}{ordinal}".ljust(64, "k")
    return NewCall(
        ids.new_tool_execution_id(), tool, f"call_{ordinal}", key, ordinal, "pending", tool == "safe", arguments
    )


def store_calls(claim: Claim, *calls: NewCall) -> Claim:
    return transitions.store_reply(claim, reply(*calls), calls=calls, then=Next(Phase.TOOLS), lease_seconds=LEASE)


def new_child(parent: Turn, execution_id: str, agent: Agent, *, callback: Conversation | None = None) -> NewChild:
    conversation = drafts.new_conversation(agent)
    turn = drafts.new_turn(conversation, {})
    turn.root_id, turn.parent_id, turn.parent_execution_id = parent.root_id, parent.pk, execution_id
    turn.depth, turn.max_depth, turn.callback = parent.depth + 1, parent.max_depth, callback
    message = drafts.new_message(conversation, "write", metadata={})
    return NewChild(execution_id, "writer", {"task": "write"}, conversation, message, turn)


def settle(claim: Claim, call: NewCall, then: Next) -> Claim:
    settlement = Settlement(call.id, ToolState.COMPLETED.value, "ok", result={"n": 1})
    return transitions.settle_tool(
        claim, settlement, call_id=call.tool_call_id, call_key=call.call_key, then=then, lease_seconds=LEASE
    )


def _middle(family: Family, turn: Turn, claim: Claim, *, is_calling: bool) -> None:
    """The turn in the middle has launched a child, and asks its model or has calls to run."""
    family.turns["turn"], family.lanes["lane"] = turn, turn.conversation
    launched = new_call("launch_agent", 0, '{"agent_name": "writer", "task": "write"}')
    child = new_child(turn, launched.id, writer)
    named = {
        "safe": "{}",
        "unsafe": "{}",
        "writer": '{"task": "write"}',
        "launch_agent": '{"agent_name": "writer", "task": "write"}',
        "wait_for": f'{{"turn_ids": ["{child.turn.pk}"]}}',
        "send_message": f'{{"conversation_id": "{family.lanes["lane:friend"].pk}", "text": "hello"}}',
    }
    calls = [new_call(tool, n, text) for n, (tool, text) in enumerate(named.items(), start=1)] if is_calling else []
    claim, _ = transitions.launch_detached(store_calls(claim, launched, *calls), child=child)
    asking = Next(Phase.MODEL, Reservation(ids.new_token(), ids.new_token()))
    family.held = settle(claim, launched, Next(Phase.TOOLS) if calls else asking)
    family.calls = {call.tool_name: call.id for call in calls}
    family.add("child", Turn.objects.select_related("conversation").get(pk=child.turn.pk))


def _neighbours(family: Family) -> None:
    """Who waits for the turn in the middle and for its child, who stands behind it, and what is sent to it."""
    lane, child = family.lanes["lane"], family.turns["child"]
    is_submitted = family.turns["turn"].submitted_at is not None
    for name, target in {"waiter": "turn" if is_submitted else "child", "stray": "child"}.items():
        family.add(name, helper.conversation().submit("please")).wait_for(family.turns[target])
    Turn.objects.filter(pk=family.id("stray")).update(pending_dependencies=2)  # as if another target had been erased
    family.add("loner", helper.conversation().submit("please"))
    if is_submitted:
        family.turns["next"] = lane.submit("and then")
    transitions.unsent([child.pk, family.id("loner")])
    _messages(family)


def _messages(family: Family) -> None:
    lane = family.lanes["lane"]
    family.deliveries["note"] = lane.post("note", key="note")
    transitions.deliver(family.deliveries["note"].pk, draft=None)
    family.deliveries["letter"] = lane.post("letter", key="letter")
    family.turns["draft"] = lane.prepare("later")


def submitted(*, is_calling: bool) -> Family:
    """A turn that is claimed, of a parent that waits for it."""
    family = Family()
    friend = family.lanes["lane:friend"] = helper.conversation()
    parent = family.add("parent", elder.conversation().submit("please"))
    call = new_call("writer", 0, '{"task": "write"}')
    child = new_child(parent, call.id, elder, callback=friend)
    transitions.launch(store_calls(claim_next(), call), children=[child])
    claim = claim_next()
    turn = Turn.objects.select_related("conversation").get(pk=child.turn.pk)
    _middle(family, turn, claim, is_calling=is_calling)
    _neighbours(family)
    return family


def inline() -> Family:
    """The same without a parent, run by the calling process."""
    family = Family()
    family.lanes["lane:friend"] = helper.conversation()
    turn = elder.conversation().prepare("please")
    claim = transitions.claim_this(turn.pk, holder()).claim
    _middle(family, turn, claim, is_calling=True)
    _neighbours(family)
    return family


def told_to_pause() -> Family:
    """A claimed turn that has not heard of it yet, and one that nobody has."""
    family = submitted(is_calling=False)
    for name in ("turn", "loner"):
        transitions.pause(family.id(name), is_cascade=False)
    return family


def quiet() -> Family:
    """A lane in which a turn has failed, and nothing runs or waits to run."""
    family = Family()
    failed = elder.conversation().submit("please")
    family.turns["turn"], family.lanes["lane"] = failed, failed.conversation
    transitions.fail(claim_next(), error=ERROR, attempt=AttemptEnd.REFUSED)
    family.lanes["lane:friend"] = helper.conversation()
    family.add("loner", helper.conversation().submit("please"))
    transitions.unsent([family.id("loner")])
    _messages(family)
    return family


def parked() -> Family:
    """A turn whose provider wanted to be asked later, which is now; another one stands behind it."""
    family = Family()
    turn = elder.conversation().submit("please")
    family.turns["turn"], family.lanes["lane"] = turn, turn.conversation
    transitions.park(claim_next(), error=ERROR, seconds=0, attempt=AttemptEnd.REFUSED)
    family.lanes["lane:friend"] = helper.conversation()
    family.add("waiter", helper.conversation().submit("please")).wait_for(turn)
    family.turns["next"] = turn.conversation.submit("and then")
    family.add("loner", helper.conversation().submit("please"))
    transitions.unsent([family.id("loner")])
    _messages(family)
    return family


# Moves


def _call(family: Family, tool: str) -> ToolExecution:
    return ToolExecution.objects.get(pk=family.calls[tool])


def store_reply(family: Family) -> object:
    return store_calls(family.held, new_call("safe", 9, "{}"))


def start_tool(family: Family) -> object:
    execution = family.calls["unsafe"]
    return transitions.start_tool(family.held, execution, tool_name="unsafe", arguments={}, lease_seconds=LEASE)


def settle_tool(family: Family) -> object:
    row = _call(family, "safe")
    call = NewCall(row.pk, row.tool_name, row.tool_call_id, row.call_key, row.ordinal, row.status, True, "{}")
    return settle(family.held, call, Next(Phase.TOOLS))


def join(family: Family) -> object:
    target_ids = [family.id("child")]
    arguments: Any = {"turn_ids": target_ids}
    return transitions.join(family.held, family.calls["wait_for"], target_ids=target_ids, arguments=arguments)


def child(family: Family, tool: str) -> NewChild:
    return new_child(family.turns["turn"], family.calls[tool], writer)


def message(family: Family, key: str) -> Delivery:
    lane = family.lanes["lane"]
    return Delivery(id=ids.new_delivery_id(), source=lane, destination=lane, key=key, text="hello")


def start(family: Family, *, is_submission: bool) -> object:
    words = drafts.new_message(family.lanes["lane"], "more", metadata={})
    return transitions.start(family.draft(), message=words, is_submission=is_submission)


def start_inline(family: Family) -> object:
    words = drafts.new_message(family.lanes["lane"], "now", metadata={})
    return transitions.claim_new(family.draft(), holder(), message=words)


def retry(family: Family) -> object:
    draft = family.draft()
    draft.retry_of_id = family.id("turn")
    return transitions.retry(draft)


def recover(family: Family) -> object:
    return transitions.recover(family.id("turn"), token=family.held.token, max_recoveries=3, seconds=0, is_dead=True)


def of_turn(transition: str, name: str, locks: str, **options: Any) -> Move:
    """A move that is told only which turn."""
    run = getattr(transitions, transition)
    return Move(transition, lambda family: run(family.id(name), **options), locks, of=name)


def of_tree(transition: str, locks: str) -> Move:
    """A cascade from the parent on."""
    run = getattr(transitions, transition)
    return Move(transition, lambda family: run(family.id("parent"), is_cascade=True), locks, of="tree")


def wait(waiter: str, target: str) -> Move:
    return Move(
        "open_waits",
        lambda family: transitions.open_waits(family.id(waiter), [family.id(target)]),
        f"GRAPH {waiter} {target}",
        of=f"{waiter}_for_{target}",
    )


def in_lane(*, delivered: str = "", continued: str = "", claimed: str = "") -> list[Move]:
    """What people, messages and maintenance do in the lane in the middle.

    Args:
        delivered, continued: What a delivery and a continuation take besides the lane.
        claimed: What claims find.
    """
    return [
        Move("say", lambda f: transitions.say(drafts.new_message(f.lanes["lane"], "more", metadata={})), "lane"),
        Move("start", partial(start, is_submission=True), "lane"),
        Move("start", partial(start, is_submission=False), "lane", of="prepared"),
        of_turn("submit", "draft", "lane draft"),
        of_turn("cancel", "draft", "lane draft"),
        Move("send", lambda f: transitions.send(message(f, "k"), agent_name="elder"), "=k"),
        Move(
            "deliver",
            lambda f: transitions.deliver(f.deliveries["letter"].pk, draft=f.draft()),
            f"lane letter {delivered}",
        ),
        Move(
            "continue_lane",
            lambda f: transitions.continue_lane(f.lanes["lane"].pk, draft=f.draft()),
            f"lane {continued}",
        ),
        Move(
            "set_deliveries_aside",
            lambda f: transitions.set_deliveries_aside(
                [each.pk for each in f.deliveries.values()], error=ERROR, seconds=0
            ),
            "lane letter note",
        ),
        Move("claim_due", lambda f: transitions.claim(holder(3)), claimed),
        Move("wake_due", lambda f: transitions.wake_due(limit=10), " ".join(re.findall(r"~\w+(?!\S)", claimed))),
    ]


def around(calls: str = "") -> list[Move]:
    """What people and maintenance do to a claimed turn and to those around it."""
    return [
        of_turn("cancel", "turn", f"ROOT lane turn parent waiter ~next {calls}"),
        of_turn("cancel", "parent", "ROOT lane:parent parent turn"),
        of_turn("cancel", "child", "ROOT lane:child child stray"),
        of_turn("cancel", "waiter", "lane:waiter waiter turn"),
        of_tree("cancel", f"ROOT lane:parent lane lane:child parent turn child waiter stray ~next {calls}"),
        of_tree("pause", "ROOT parent turn child"),
        of_turn("pause", "turn", "ROOT turn", is_cascade=False),
        wait("loner", "turn"),
        wait("next", "child"),
        wait("child", "waiter"),
        Move("recover", recover, "lane turn parent waiter"),
        of_turn("give_up", "parent", "lane:parent parent turn", error=ERROR),
        of_turn("give_up", "child", "lane:child child stray", error=ERROR),
        of_turn("recount", "stray", "stray"),
        of_turn("set_aside", "turn", "turn", error=ERROR, seconds=0),
        of_turn("ready", "parent", "lane:parent parent"),
        Move("unsent", lambda f: transitions.unsent([f.id("child"), f.id("next")]), "child next"),
        Move("renew", lambda f: transitions.renew([f.held], lease_seconds=LEASE), "~turn"),
    ]


def letting_go(calls: str = "", neighbours: str = "parent waiter") -> list[Move]:
    attempt = AttemptEnd.LOST
    return [
        Move(
            "fail",
            lambda f: transitions.fail(f.held, error=ERROR, attempt=attempt),
            f"lane turn {neighbours} {calls}",
        ),
        Move("park", lambda f: transitions.park(f.held, error=ERROR, seconds=0, attempt=attempt), "lane turn"),
        Move(
            "release",
            lambda f: transitions.release(f.held, error=ERROR, seconds=0, attempt=attempt, is_fault=False),
            "lane turn",
        ),
    ]


ASKING = [
    Move("store_reply", store_reply, "lane turn"),
    Move("complete", lambda f: transitions.complete(f.held, text="hi", reply=reply()), "lane turn parent waiter"),
    *letting_go(),
]
CALLING = [
    Move("start_tool", start_tool, "turn calls"),
    Move("settle_tool", settle_tool, "lane turn calls"),
    Move(
        "launch",
        lambda f: transitions.launch(f.held, children=[child(f, "writer")]),
        "ROOT lane turn calls",
    ),
    Move(
        "launch_detached",
        lambda f: transitions.launch_detached(f.held, child=child(f, "launch_agent")),
        "ROOT lane turn calls",
    ),
    Move("join", join, "GRAPH lane turn child calls"),
    Move("send_under_claim", lambda f: transitions.send_under_claim(f.held, message(f, "k")), "lane turn =k"),
    letting_go("calls")[0],
]
HERE = [
    Move(
        "start_child",
        lambda f: transitions.claim_child(child(f, "writer"), holder(), parent_token=f.held.token),
        "ROOT turn calls",
    ),
    Move("recover", recover, "lane turn calls"),
    of_turn("cancel", "turn", "ROOT lane turn calls"),
    *(move for move in CALLING if move.transition in {"start_tool", "settle_tool", "launch_detached"}),
    letting_go("calls", "")[0],
]
IN_A_FREE_LANE = [
    Move("retry", retry, "lane"),
    Move("start_inline", start_inline, "lane note"),
    Move("claim_inline", lambda f: transitions.claim_this(f.id("draft"), holder()), "lane draft note"),
    wait("draft", "loner"),
    *in_lane(delivered="note", continued="note", claimed="~lane:loner ~loner"),
]
TOLD = [
    Move(
        "acknowledge_pause",
        lambda f: transitions.acknowledge_pause(f.held),
        "lane turn",
    ),
    of_turn("resume", "turn", "ROOT turn", is_cascade=False),
    of_turn("resume", "loner", "loner", is_cascade=False),
    of_tree("resume", "ROOT parent turn child"),
]
PARKED = [
    of_turn("ready", "turn", "lane turn"),
    of_turn("give_up", "turn", "lane turn waiter ~next", error=ERROR),
    of_turn("cancel", "turn", "ROOT lane turn waiter ~next"),
    of_turn("pause", "turn", "ROOT turn", is_cascade=False),
    of_turn("set_aside", "turn", "turn", error=ERROR, seconds=0),
    of_turn("cancel", "waiter", "lane:waiter waiter turn"),
    Move("unsent", lambda f: transitions.unsent([f.id("turn"), f.id("next")]), "next"),
]


_ALONE = {"start_child"}
"""It does not count the revision up: the process that runs a turn inline does one thing at a time."""


@dataclass(frozen=True)
class World:
    """A family and who meets in it: each of `moves` with each of them, and with each of `others` both ways round."""

    name: str
    build: Callable[[], Family]
    moves: list[Move]
    others: list[Move] = field(default_factory=list)

    @property
    def everybody(self) -> list[Move]:
        return [*self.moves, *self.others]

    def behind(self, first: Move) -> list[Move]:
        """Those that touch a row which the first one touches."""
        found = self.everybody if first in self.moves else self.moves
        return [second for second in found if first.meets(second) and {first.transition, second.transition} != _ALONE]


_IN_A_BUSY_LANE = in_lane(claimed="~lane:child ~child ~lane:loner ~loner")
_TWINS = {"say", "submit", "cancel", "send", "set_deliveries_aside", "continue_lane"}
"""They lock the lane and their own row: beside most moves one of them stands for all."""


def _one_of_each(moves: list[Move]) -> list[Move]:
    return [move for move in moves if move.transition not in _TWINS and not move.of]


WORLDS = [
    World("asking", partial(submitted, is_calling=False), [*ASKING, *around()], _IN_A_BUSY_LANE),
    World("calling", partial(submitted, is_calling=True), CALLING, [*around("calls"), *_one_of_each(_IN_A_BUSY_LANE)]),
    World(
        "told",
        told_to_pause,
        TOLD,
        [
            *ASKING,
            *(move for move in around() if move.transition in {"pause", "cancel", "recover", "give_up", "unsent"}),
            *_one_of_each(in_lane(claimed="~lane:child ~child")),
        ],
    ),
    World("inline", inline, HERE, _one_of_each(_IN_A_BUSY_LANE)),
    World("quiet", quiet, IN_A_FREE_LANE),
    World("parked", parked, PARKED, _one_of_each(in_lane(claimed="~lane:loner ~loner"))),
]
MEETING_NOBODY = {"open_conversation": "a row that nobody knows yet, and no lock"}
