"""A model client that answers from a script: no network, every request checked."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from typing import Any

from django.conf import settings

from turnkit_django import conf
from turnkit_django.clients.base import model_error, retry_after_of
from turnkit_django.clients.chat import RequestForm, form_for, parse_reply, request_body
from turnkit_django.core.requests import ModelReply, ModelRequest
from turnkit_django.core.usage import Usage
from turnkit_django.errors import ModelError
from turnkit_django.testing.provider_state import ProviderStates
from turnkit_django.testing.script import Script, ScriptedFailure, ScriptPlayer, ScriptRequest, Step
from turnkit_django.testing.strict import StrictRequestError, check_request


class ScriptedModel:
    """Answers from a script, through the same reading and writing as real answers. Safe for threads.

    Each answer reports 100 tokens in and 20 out unless the step says otherwise.

    Args:
        script: See `turnkit_django.testing.script`.
        strict: Refuse requests that a strict provider would refuse.
        cost: What each answer costs; None is unknown, and so is the cost of an answer that reports no usage.
        form: What the model wants of requests; None is what `REQUEST_FORMS` says for the model's name.

    Attributes:
        requests: Each `ModelRequest`, in order.
        violations: Every broken rule, also where the engine caught the exception.
        usages: The usage of each answer handed out; None where it reported none.
    """

    def __init__(
        self,
        script: Script = (),
        *,
        strict: bool = True,
        cost: Decimal | None = Decimal("0.001"),
        form: RequestForm | None = None,
    ) -> None:
        self.requests: list[ModelRequest] = []
        self.violations: list[str] = []
        self.usages: list[Usage | None] = []
        self._player = ScriptPlayer(script)
        self._states = ProviderStates()
        self._strict = strict
        self._cost = cost
        self._form = form
        self._lock = threading.Lock()

    @property
    def overrun(self) -> int:
        """How often the script had nothing left to say."""
        return self._player.overrun

    @property
    def usage(self) -> Usage:
        """What was handed out so far, in total."""
        with self._lock:
            return sum((usage for usage in self.usages if usage), Usage())

    def extend(self, steps: Iterable[Step]) -> None:
        """Add steps to a script that is a list."""
        self._player.extend(steps)

    def validate(self, model: str) -> None:
        """Nothing to check: a script needs no credentials."""

    def complete(self, request: ModelRequest) -> ModelReply:
        """The next answer of the script.

        Raises:
            StrictRequestError: The request breaks a strict rule.
            TransientModelError: The script says so.
            PermanentModelError: The script says so.
        """
        provider = request.model.partition("/")[0]
        form = self._form or _configured_form(request.model)
        body = request_body(request, provider=provider, form=form)
        with self._lock:
            self.requests.append(request)
        self._check(body, provider=provider, form=form)
        answer = self._player.answer(ScriptRequest(body, metadata=request.metadata))
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, ScriptedFailure):
            raise _failure(answer)
        return self._reply(answer, provider=provider)

    def _check(self, body: dict[str, Any], *, provider: str, form: RequestForm) -> None:
        if not self._strict:
            return
        found = check_request(
            body,
            call_id_pattern=form.call_id_pattern,
            empty_content=form.empty_content,
            states=self._states,
            provider=provider,
        )
        if found:
            with self._lock:
                self.violations.extend(found)
            raise StrictRequestError(found)

    def _reply(self, answer: dict[str, Any], *, provider: str) -> ModelReply:
        try:
            reply = parse_reply(answer, provider=provider)
        except ModelError as error:
            error.args = (_clean(str(error)),)
            if error.usage:
                with self._lock:
                    self.usages.append(Usage(**error.usage))
            raise
        for choice in answer.get("choices") or []:
            if isinstance(choice, dict):
                self._states.record(choice.get("message") or {}, provider)
        with self._lock:
            self.usages.append(reply.usage)
        return replace(reply, cost=self._cost if reply.usage else None)


@contextmanager
def scripted_model(script: Script = (), **options: Any) -> Iterator[ScriptedModel]:
    """Answer every model call of this process from a script; the `ScriptedModel`.

    Args:
        script: See `turnkit_django.testing.script`.
        options: As `ScriptedModel` takes them.
    """
    from turnkit_django.engine import model_call

    model = ScriptedModel(script, **options)
    with model_call.use(model):
        yield model


def _failure(answer: ScriptedFailure) -> ModelError:
    headers = {} if answer.retry_after is None else {"retry-after": str(answer.retry_after)}
    text = _clean(f"HTTP {answer.status}: {answer.message}")
    return model_error(text, status_code=answer.status, retry_after=retry_after_of(headers))


def _has_settings() -> bool:
    return settings.configured or "DJANGO_SETTINGS_MODULE" in os.environ


def _configured_form(model: str) -> RequestForm:
    return form_for(model, forms=conf.get().REQUEST_FORMS) if _has_settings() else RequestForm()


def _clean(text: str) -> str:
    return conf.clean(text) if _has_settings() else text
