import inspect
import subprocess
import sys

import pytest

import turnkit_django
from turnkit_django import agents, signals, tools
from turnkit_django.core.explanation import Awaited, Descendant, Explanation, Hold, Limit
from turnkit_django.core.reasons import Reason
from turnkit_django.deliveries import InputStatus
from turnkit_django.models import Conversation, Turn

PUBLIC = {
    turnkit_django: ["Agent", "Tool", "ToolContext", "errors", "get_agent", "register", "tool"],
    agents: ["Agent", "get_agent", "register", "registered"],
    tools: ["LaunchAgent", "SendMessage", "SubAgentTool", "Tool", "ToolContext", "WaitFor", "normalize_result", "tool"],
    signals: ["delivery_changed", "message_created", "model_call_changed", "tool_call_changed", "turn_changed"],
}

_TASK = "(self, task: 'str', *, input: 'object' = None, parent: 'Run | Turn | None' = None, \
subject: 'Model | None' = None, metadata: 'Mapping[str, Json] | None' = None, \
context: 'Mapping[str, Json] | None' = None, principal: 'Json' = None, model: 'str | None' = None, \
thinking: 'Mapping[str, Json] | EllipsisType | None' = Ellipsis"
_HERE = f"{_TASK}, on_event: 'OnEvent | None' = None) -> 'Run'"

SIGNATURES = [
    (turnkit_django.register, "(agent: 'Agent') -> 'Agent'"),
    (turnkit_django.get_agent, "(name: 'str') -> 'Agent'"),
    (
        turnkit_django.tool,
        "(function: 'Callable[..., object] | None' = None, /, *, name: 'str | None' = None, "
        "description: 'str | None' = None, usage_hint: 'str' = '', "
        "parameters: 'Mapping[str, object] | None' = None, terminal: 'bool' = False, "
        "recovery: 'Recovery' = 'unknown', timeout: 'timedelta | None' = None) -> "
        "'FunctionTool | Callable[[Callable[..., object]], FunctionTool]'",
    ),
    (
        turnkit_django.Agent,
        "(*, name: 'str', version: 'str' = '1', description: 'str' = '', model: 'str | None' = None, "
        "instructions: 'str' = '', tools: 'Sequence[Tool | type[Tool]]' = (), "
        "sub_agents: 'Sequence[Agent]' = (), max_iterations: 'int | None' = None, max_depth: 'int | None' = None, "
        "timeout: 'timedelta | int | None' = None, max_output_tokens: 'int | None' = None, "
        "thinking: 'Mapping[str, object] | None' = None, client: 'ModelClient | None' = None, "
        "on_event: 'OnEvent | Sequence[OnEvent] | None' = None) -> 'None'",
    ),
    (
        turnkit_django.Agent.conversation,
        "(self, *, subject: 'Model | None' = None, model: 'str | None' = None, "
        "metadata: 'Mapping[str, Json] | None' = None, "
        "context: 'Mapping[str, Json] | None' = None, principal: 'Json' = None) -> 'Conversation'",
    ),
    (turnkit_django.Tool.spec, "(self) -> 'ToolSpec'"),
    (turnkit_django.Tool.validate, "(self, arguments_text: 'str | None') -> 'ValidArguments'"),
    (turnkit_django.Tool.invoke, "(self, arguments: 'ValidArguments', *, context: 'ToolContext') -> 'object'"),
    (turnkit_django.Tool.completion, "(self, result: 'Any') -> 'str'"),
    (turnkit_django.Agent.prepare, _HERE),
    (turnkit_django.Agent.run, _HERE),
    (turnkit_django.Agent.submit, f"{_TASK}, callback: 'Conversation | None' = None) -> 'Run'"),
    (turnkit_django.ToolContext, "(turn: 'Row', execution: 'Row', conversation: 'Row', principal: 'Json') -> None"),
    (
        Conversation.send,
        "(self, destination: 'Conversation', text: 'str', *, key: 'str', principal: 'Json' = None) -> 'Delivery'",
    ),
    (Conversation.post, "(self, text: 'str', *, key: 'str', principal: 'Json' = None) -> 'Delivery'"),
    (Conversation.input_status, "(self, delivery: 'Delivery') -> 'InputStatus'"),
    (
        InputStatus,
        "(delivery: 'Delivery', status: \"Literal['pending', 'applied']\", turn_id: 'str | None', "
        "request_id: 'str | None') -> None",
    ),
    (Turn.submit, "(self, *, callback: 'Conversation | None' = None) -> 'Turn'"),
    (Turn.explain, "(self) -> 'Explanation'"),
    (Turn.wait_for, "(self, *targets: 'Turn | str') -> 'Turn'"),
    (Turn.retry, "(self) -> 'Turn'"),
    *((verb, "(self, *, descendants: 'str' = 'retain') -> 'Turn'") for verb in (Turn.pause, Turn.resume, Turn.cancel)),
    (Explanation.as_dict, "(self) -> 'dict[str, Json]'"),
    (
        Explanation,
        "(turn: 'str', status: 'str', reason: 'Reason', summary: 'str', since: 'datetime', since_column: 'str', "
        "now: 'datetime', waiting_on: 'Sequence[Awaited]', claim: 'Hold | None', attempts: 'int', "
        "next_attempt_at: 'datetime | None', deadline_at: 'datetime | None', limit: 'Limit | None', "
        "last_error: 'dict[str, Json] | None', action: 'str', "
        "retry_of: 'str | None' = None, descendants: 'Sequence[Descendant]' = (), "
        "more_descendants: 'int' = 0) -> None",
    ),
    (
        Descendant,
        "(turn: 'str', parent: 'str | None', depth: 'int', agent: 'str', status: 'str', reason: 'Reason') -> None",
    ),
    (Awaited, "(kind: 'str', id: 'str', since: 'datetime') -> None"),
    (Hold, "(by: 'str', since: 'datetime', lease_expires_at: 'datetime') -> None"),
    (Limit, "(name: 'str', value: 'float | None', used: 'float | None') -> None"),
    (tools.normalize_result, "(value: 'object') -> 'dict[str, Json]'"),
]


REASONS = """
not_submitted wake_up_sent wake_up_lost no_wake_up behind_in_lane worker_died agent_not_registered backed_off
dependencies parked time_has_come paused no_place_in_lane overdue set_aside
calling_model running_tool between_steps running_inline overdue_in_step lease_expired inline_lease_expired
completed cancelled stale failed_max_iterations failed_timeout failed_max_recoveries failed_max_broken_replies
failed_model_retries failed_model_error failed_no_access failed_refused failed_worker_error failed_worker_stopped failed
"""


def test_the_codes_of_explanations_are_frozen():
    assert [reason.value for reason in Reason] == REASONS.split()


@pytest.mark.parametrize("module", PUBLIC, ids=lambda module: module.__name__)
def test_the_public_names_are_these_and_no_others(module: object):
    assert sorted(module.__all__) == sorted(PUBLIC[module])
    assert all(hasattr(module, name) for name in PUBLIC[module])


@pytest.mark.parametrize(("subject", "signature"), SIGNATURES, ids=lambda value: getattr(value, "__name__", ""))
def test_public_signatures_are_frozen(subject: object, signature: str):
    assert str(inspect.signature(subject)) == signature


def test_importing_the_package_needs_no_django_setup_and_loads_no_model_no_litellm_and_no_queue():
    code = """
import sys
import turnkit_django
for name in turnkit_django.__all__:
    getattr(turnkit_django, name)
heavy = ("litellm", "django.db.models", "rq", "redis", "django_rq", "turnkit_django.models", "turnkit_django.conf")
print([name for name in heavy if name in sys.modules])
"""
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True, env={}
    )

    assert (found.stdout.strip(), found.stderr) == ("[]", "")
