"""Act: apply what a coordinating call asks for, once, whatever dies meanwhile.

The body of such a tool says what it wants and does nothing that lasts. What the engine has done about it stands in rows
that name the call, which are looked for first: a turn that it started, a message that it sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import assert_never, cast

from turnkit_django.agents import get_agent
from turnkit_django.core.content import Json, clean_text, shown
from turnkit_django.core.effects import Effect, Join, Launch, Send
from turnkit_django.core.ids import new_delivery_id
from turnkit_django.core.states import ToolState
from turnkit_django.engine.drafts import new_conversation, new_message, new_turn, require_text
from turnkit_django.engine.run import Running, error
from turnkit_django.engine.tool_calls import Outcome, failure, run_body, settle
from turnkit_django.errors import BudgetError, ConfigError, InputError, StateError, ToolError, ToolValidationError
from turnkit_django.models import Delivery, ToolExecution, Turn
from turnkit_django.store import connections, reads, transitions
from turnkit_django.store.envelopes import envelope
from turnkit_django.store.records import NewChild
from turnkit_django.tools import Tool
from turnkit_django.tools.tool import ValidArguments

_MOST_NAMED = 5

RunChild = Callable[[Running, NewChild], None]
"""Runs the turn that an inline call asks for in this process, until it has ended."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a call wants."""

    execution: ToolExecution
    arguments: ValidArguments
    effect: Effect


def act(run: Running, execution: ToolExecution, tool: Tool, *, run_child: RunChild) -> bool:
    """Apply a coordinating call, or tell its result; whether the turn goes on here and now."""
    child = reads.child_of(execution.pk)
    asked = _done(envelope(child)) if child else _ask(run, execution, tool)
    if isinstance(asked, Outcome):
        settle(run, execution, asked, None)
        return True
    match asked.effect:
        case Launch():
            return _launch(run, asked, asked.effect, run_child)
        case Send():
            return _send(run, asked, asked.effect)
        case Join():
            return _join(run, asked, asked.effect)
        case _:
            assert_never(asked.effect)


def _done(result: Json) -> Outcome:
    return Outcome(ToolState.COMPLETED, result=result)


def _ask(run: Running, execution: ToolExecution, tool: Tool) -> Outcome | Asked:
    """Call the body, which says what it wants; an Outcome if that cannot be had."""
    try:
        arguments = tool.validate(execution.arguments_text)
    except ToolValidationError as problem:
        return failure("ToolValidationError", str(problem))
    connections.release()
    execution.arguments = arguments.arguments
    outcome = run_body(run, execution, lambda context: cast("Json", _effect(tool.invoke(arguments, context=context))))
    if outcome.status is not ToolState.COMPLETED:
        return outcome
    effect = cast("Effect", outcome.result)
    return _problem(run, execution, effect) or Asked(execution, arguments, effect)


def _effect(value: object) -> Effect:
    if not isinstance(value, Effect):
        raise TypeError(f"a tool that coordinates must return a value of `core/effects.py`, got {shown(value)}")
    return value


def _problem(run: Running, execution: ToolExecution, effect: Effect) -> Outcome | None:
    """Why the engine does not launch what is asked for."""
    if not isinstance(effect, Launch):
        return None
    if execution.started_at is not None:  # an earlier worker has launched it, and its turn is not there any more
        message = "The turn that this call had started was deleted. Whether it took effect is unknown."
        return Outcome(ToolState.INTERRUPTED, error=error("Interrupted", message))
    if run.turn.depth >= run.turn.max_depth:
        deepest = f"maximum depth reached ({run.turn.max_depth})"
        return failure("BudgetError", f"{deepest}: this agent may not call others; do the task yourself")
    mine = sorted(delegate.name for delegate in run.agent.delegates)
    if effect.is_detached and effect.agent_name not in mine:
        known = ", ".join(mine) or "none"
        return failure("ToolError", f"There is no agent {shown(effect.agent_name)}. Agents: {known}")
    return None


def _launch(run: Running, asked: Asked, effect: Launch, run_child: RunChild) -> bool:
    if effect.is_detached:
        return _launch_detached(run, asked, effect)
    return _delegate(run, asked) if run.turn.is_background else _delegate_here(run, asked, run_child)


def _delegate(run: Running, asked: Asked) -> bool:
    """Start what this call and the ones right behind it ask for, all at once, and let the worker go."""
    children = [child for each in (asked, *_following(run, asked.execution)) if (child := _child(run, each))]
    if not children:
        return True
    transitions.launch(run.held.claim, children=children)
    return False


def _following(run: Running, execution: ToolExecution) -> Iterator[Asked]:
    """The calls that stand directly behind and delegate too. What cannot be had of them is settled on the way."""
    for call in [call for call in run.open_calls() if call.ordinal > execution.ordinal]:
        tool = run.agent.tool_named(call.tool_name)
        if tool is None or not tool.coordinates or call.error is not None or call.started_at is not None:
            return
        asked = _ask(run, call, tool)
        if isinstance(asked, Outcome):
            settle(run, call, asked, None)
        elif isinstance(asked.effect, Launch) and not asked.effect.is_detached:
            yield asked
        else:
            return


def _delegate_here(run: Running, asked: Asked, run_child: RunChild) -> bool:
    """Run it in this process: somebody waits for the answer."""
    child = _child(run, asked)
    if child is not None:
        run_child(run, child)
        run.held.require()
        settle(run, asked.execution, _done(envelope(reads.turn(child.turn.pk))), asked.arguments)
    return True


def _launch_detached(run: Running, asked: Asked, effect: Launch) -> bool:
    child = _child(run, asked)
    if child is not None:
        child.turn.callback = run.conversation if effect.has_callback else None
        claim, is_launched = transitions.launch_detached(run.held.claim, child=child)
        run.held.wrote(claim.with_pause(is_requested=not is_launched))
        if is_launched:
            settle(run, asked.execution, _done(envelope(reads.turn(child.turn.pk))), asked.arguments)
    return True


def _child(run: Running, asked: Asked) -> NewChild | None:
    """The rows of a new turn; None if they cannot be made, and the call is settled with the reason."""
    try:
        return _new_child(run, asked, cast("Launch", asked.effect))
    except (ConfigError, InputError) as problem:
        settle(run, asked.execution, failure(type(problem).__name__, str(problem)), asked.arguments)
        return None


def _new_child(run: Running, asked: Asked, effect: Launch) -> NewChild:
    execution, parent = asked.execution, run.turn
    agent = get_agent(effect.agent_name)
    lineage: dict[str, Json] = {
        "parent_conversation_id": run.conversation.pk,
        "parent_turn_id": parent.pk,
        "parent_tool_execution_id": execution.pk,
    }
    conversation = new_conversation(agent, metadata=lineage, principal=parent.principal)
    turn = new_turn(conversation, {})
    turn.root_id, turn.parent_id, turn.parent_execution_id = parent.root_id or parent.pk, parent.pk, execution.pk
    turn.depth, turn.max_depth = parent.depth + 1, parent.max_depth
    turn.hops, turn.deadline_at = parent.hops, parent.deadline_at
    message = new_message(conversation, effect.task, metadata={})
    return NewChild(execution.pk, execution.tool_name, asked.arguments.arguments, conversation, message, turn)


def _send(run: Running, asked: Asked, effect: Send) -> bool:
    """Its key is the call's, so that it is sent once however often the call is made."""
    delivery = Delivery(
        id=new_delivery_id(),
        source=run.conversation,
        destination_id=effect.conversation_id,
        key=f"message:{asked.execution.pk}",
        text=clean_text(effect.text),
        principal=run.turn.principal,
    )
    try:
        require_text(effect.text)
        if not reads.has_conversation(effect.conversation_id):
            raise ToolError(f"There is no conversation {shown(effect.conversation_id)}.")
        claim, stored = transitions.send_under_claim(run.held.claim, delivery)
    except (InputError, ToolError, BudgetError) as problem:
        settle(run, asked.execution, failure(type(problem).__name__, str(problem)), asked.arguments)
        return True
    run.held.wrote(claim)
    settle(run, asked.execution, _done({"delivery_id": stored.pk, "status": "sent"}), asked.arguments)
    return True


def _join(run: Running, asked: Asked, effect: Join) -> bool:
    """Wait, without a worker, until the turns have ended; tell their results in the order in which they were named."""
    wanted = tuple(dict.fromkeys(effect.turn_ids))
    found = reads.of_tree(run.turn.root_id or run.turn.pk, wanted)
    outcome = _unfit(run, wanted, found)
    if outcome is None and all(found[turn_id].is_terminal for turn_id in wanted):
        outcome = _done({"results": [envelope(found[turn_id]) for turn_id in wanted]})
    if outcome is None:
        try:
            arguments = asked.arguments.arguments
            transitions.join(run.held.claim, asked.execution.pk, target_ids=wanted, arguments=arguments)
        except StateError as problem:
            outcome = failure("ToolError", str(problem))
    if outcome is not None:
        settle(run, asked.execution, outcome, asked.arguments)
    return outcome is not None


def _unfit(run: Running, wanted: tuple[str, ...], found: Mapping[str, Turn]) -> Outcome | None:
    unknown = [turn_id for turn_id in wanted if turn_id not in found]
    if unknown or not wanted:
        named = ", ".join(shown(turn_id) for turn_id in unknown[:_MOST_NAMED]) or "no turn"
        return failure("ToolError", f"Expected ids of turns that were launched from here, got {named}.")
    if not run.turn.is_background and not all(found[turn_id].is_terminal for turn_id in wanted):
        return failure("ToolError", "Only a submitted turn can wait for others; this one runs while somebody waits.")
    return None
