"""A client of the soak's model. Importing litellm takes seconds, and the workers live for four on average."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from dataclasses import replace
from decimal import Decimal

from turnkit_django.clients.base import model_error
from turnkit_django.clients.chat import parse_reply, request_body
from turnkit_django.core.requests import ModelReply, ModelRequest
from turnkit_django.errors import TransientModelError

_COST = Decimal("0.001")
_SECONDS = 30
# Not the proxy of the environment: the server is on loopback.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class LoopbackClient:
    """Asks the server at `SOAK_MODEL`."""

    def validate(self, model: str) -> None:
        """Nothing to check."""

    def complete(self, request: ModelRequest) -> ModelReply:
        message = urllib.request.Request(  # noqa: S310  the soak's own server
            f"{os.environ['SOAK_MODEL']}/chat/completions",
            data=json.dumps(request_body(request, provider="openai")).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with _opener.open(message, timeout=_SECONDS) as response:
                answer = json.loads(response.read())
        except urllib.error.HTTPError as problem:
            raise model_error(problem.read().decode(), status_code=problem.code) from None
        except OSError as problem:
            raise TransientModelError(f"no answer: {problem}") from problem
        return replace(parse_reply(answer, provider="openai"), cost=_COST)
