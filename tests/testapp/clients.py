"""A client for `model_server` that starts in a moment: importing litellm takes seconds in every process."""

import json
import os
import urllib.error
import urllib.request
from dataclasses import replace
from decimal import Decimal

from turnkit_django.clients.base import model_error, retry_after_of
from turnkit_django.clients.chat import parse_reply, request_body
from turnkit_django.core.requests import ModelReply, ModelRequest
from turnkit_django.errors import TransientModelError

# Not the proxy of the environment: the server is on loopback.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class HttpClient:
    """Asks the server at `OPENAI_API_BASE`, and tells it which conversation and which process is asking."""

    def validate(self, model: str) -> None:
        """Nothing to check."""

    def complete(self, request: ModelRequest) -> ModelReply:
        asking = {**request.metadata, "pid": str(os.getpid())}
        body = {**request_body(request, provider="openai"), "metadata": asking}
        message = urllib.request.Request(
            f"{os.environ['OPENAI_API_BASE']}/chat/completions",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with _opener.open(message, timeout=60) as response:
                answer = json.loads(response.read())
        except urllib.error.HTTPError as problem:
            text = f"HTTP {problem.code}: {problem.read().decode()}"
            waits = retry_after_of(dict(problem.headers))
            raise model_error(text, status_code=problem.code, retry_after=waits) from None
        except OSError as problem:
            raise TransientModelError(f"no answer: {problem}") from problem
        return replace(parse_reply(answer, provider="openai"), cost=Decimal("0.001"))
