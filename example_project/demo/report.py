"""The tables after the story."""

from __future__ import annotations

from example_project.demo.evidence import calls_of
from example_project.demo.story import Story
from example_project.demo.terminal import Terminal
from example_project.demo.watching import recovery_of
from turnkit_django.core.content import as_text
from turnkit_django.models import Message, ToolExecution, Turn

_PRICE_OF_A_MODEL = "At the list price of the model."
_PRICE_OF_THE_SCRIPT = (
    "Nothing was paid: a script on this machine answered in the model's place, over real HTTP. The sum is what the "
    "named model would cost at its list price for these token counts, which the script makes up."
)


def tables(terminal: Terminal, story: Story, *, is_real_model: bool) -> None:
    turn = story.watcher.turn
    conversation = turn.conversation
    terminal.quote("The agent's answer", turn.output_text or "none")
    terminal.table(
        f"The conversation {conversation.pk}",
        ["#", "role", "content"],
        [[str(message.sequence), message.role, _content(message)] for message in conversation.messages.all()],
    )
    terminal.table(
        "The tools",
        ["tool", "after a crash", "arguments", "status", "result"],
        [_tool(execution, story) for execution in turn.tool_executions.order_by("ordinal")],
        note="replay_safe: may be called again after a crash. unknown: never called again once it has begun.",
    )
    note = _PRICE_OF_A_MODEL if is_real_model else _PRICE_OF_THE_SCRIPT
    terminal.table("The cost", ["model", "input tokens", "output tokens", "US dollars"], [_cost(turn)], note=note)
    _timeline(terminal, story)


def _content(message: Message) -> str:
    lines = []
    for part in message.content:
        match part["type"]:
            case "text" | "tool_result":
                lines.append(part["text"])
            case "tool_call":
                lines.append(f"calls {part['name']} {part['arguments']}")
    return "\n".join(lines)


def _tool(execution: ToolExecution, story: Story) -> list[str]:
    calls = calls_of(execution, story)
    name = f"{execution.tool_name} (called {len(calls)} times)" if len(calls) > 1 else execution.tool_name
    outcome = execution.result if execution.error is None else execution.error["message"]
    return [name, recovery_of(execution), execution.arguments_text, execution.status, as_text(outcome)]


def _cost(turn: Turn) -> list[str]:
    price = "unknown" if turn.cost is None else f"{turn.cost:.6f}"
    return [turn.model, str(turn.usage.input_tokens + turn.usage.cached_tokens), str(turn.usage.output_tokens), price]


def _timeline(terminal: Terminal, story: Story) -> None:
    events = sorted(story.watcher.events, key=lambda event: event.at)
    begin = events[0].at
    rows = [[f"{(event.at - begin).total_seconds():.2f}", event.who, event.what] for event in events]
    terminal.table("The timeline", ["seconds", "who", "what"], rows, note="By the clock of the database.")
