"""The model of the measured turn: it answers at once, so that all the time is the system's own."""

from __future__ import annotations

import json
from decimal import Decimal

from benchmarks import first_call, job
from turnkit_django.core.content import ToolCall
from turnkit_django.core.requests import ModelReply, ModelRequest
from turnkit_django.core.usage import Usage


class InstantModel:
    """Calls the tool, then answers with text."""

    def validate(self, model: str) -> None:
        """Nothing to check."""

    def complete(self, request: ModelRequest) -> ModelReply:
        first_call.note()
        usage, cost = Usage(input_tokens=100, output_tokens=20), Decimal("0.001")
        if job.is_answered([dict(message) for message in request.messages]):
            return ModelReply(text=job.ANSWER, finish_reason="stop", usage=usage, cost=cost, provider="openai")
        call = ToolCall(id="call_1", name=job.TOOL, arguments=json.dumps(job.ARGUMENTS))
        return ModelReply(calls=(call,), finish_reason="tool_calls", usage=usage, cost=cost, provider="openai")
