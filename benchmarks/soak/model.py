"""The model: its answer depends on the request alone, so it is the same in any order and after any crash.

A task is a line such as `delegate 17`. Its number comes back in the calls, in their effects and in the answer.
"""

from __future__ import annotations

import json
import threading
from typing import Any

from turnkit_django.testing import call, text

ANSWER_SECONDS = 0.01
CHILDREN = {"delegate": 2, "tree": 3, "launch": 1, "callback": 1, "risk": 1}
"""How many turns a task starts, those below its children included."""
SAFE = frozenset({"safe", "both", "delegate", "tree", "launch"})
"""The tasks in whose course the replay-safe tool is called once."""
UNSAFE = frozenset({"unsafe", "both", "delegate", "callback"})
"""The tasks in whose course the tool of unknown recovery is called once."""
TASKS = frozenset({"plain", "tell", "pass", "refuse", *CHILDREN, *SAFE, *UNSAFE})

_UNFINISHED = frozenset({"pending", "running", "waiting"})


def answer(request: Any) -> Any:
    threading.Event().wait(ANSWER_SECONDS)
    task, results = _at_hand(request.messages)
    if not task:
        return text("noted")
    return _first_step(*task) if not results else _next_step(task, results)


def _at_hand(messages: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """The task of the turn that asks, as words, and the results of its calls. Messages of others are no tasks."""
    task: list[str] = []
    results: list[str] = []
    for message in messages:
        words = str(message.get("content") or "").split()
        match message["role"]:
            case "user" if words[0] in TASKS:
                task, results = words, []
            case "tool":
                results.append(message["content"])
            case "assistant" if not message.get("tool_calls"):
                task, results = [], []
    return task, results


def _first_step(kind: str, number: str, destination: str = "") -> Any:
    n = {"n": int(number)}
    clerk = {"agent_name": "soak_clerk"}
    steps: dict[str, Any] = {
        "safe": call("safe", n),
        "unsafe": call("unsafe", n),
        "both": [call("safe", n), call("unsafe", n)],
        "delegate": [call("soak_clerk", {"task": f"safe {number}"}), call("soak_clerk", {"task": f"unsafe {number}"})],
        "tree": [call("soak_clerk", {"task": f"pass {number}"}), call("soak_clerk", {"task": f"plain {number}"})],
        "pass": call("soak_runner", {"task": f"safe {number}"}),
        "risk": call("soak_clerk", {"task": f"refuse {number}"}),
        "refuse": {"error": {"status": 400}},
        "launch": call("launch_agent", clerk | {"task": f"safe {number}"}),
        "callback": call("launch_agent", clerk | {"task": f"unsafe {number}", "callback": True}),
        "tell": call("send_message", {"conversation_id": destination, "text": f"note {number}"}),
    }
    return steps.get(kind) or text(f"done {number}")


def _next_step(task: list[str], results: list[str]) -> Any:
    told = json.loads(results[-1])
    if task[0] == "launch" and told.get("status") in _UNFINISHED:
        return call("wait_for", {"turn_ids": [told["turn_id"]]})
    return text(f"done {task[1]}")
