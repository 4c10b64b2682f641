"""The default model client, and the only module that imports litellm."""

from __future__ import annotations

import json
import logging
import os
import threading
import warnings
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from functools import cache
from typing import Any

from turnkit_django import conf
from turnkit_django.clients.base import is_transient, model_error, retry_after_of
from turnkit_django.clients.chat import Body, form_for, parse_reply, request_body
from turnkit_django.core.cost import cost_of, money
from turnkit_django.core.redaction import redact
from turnkit_django.core.requests import ModelReply, ModelRequest
from turnkit_django.core.usage import Usage
from turnkit_django.errors import ModelAccessError, ModelError, TransientModelError

logger = logging.getLogger("turnkit")

_LONGEST_MESSAGE = 2000
_DEEPEST_CAUSE = 20
_CONNECT_SECONDS = 10.0
_OPENAI_BASES = ("OPENAI_API_BASE", "OPENAI_BASE_URL")
_ENVIRONMENT = {
    "LITELLM_OFFLINE_MODE": "true",  # prices, beta headers, tokenizers: the copies in the package
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_MODE": "PRODUCTION",  # reads no .env file
}
_importing = threading.Lock()


def _litellm() -> Any:
    """The library, imported at the first call: it takes seconds and 190 MiB, which a web process need not pay."""
    with _importing:
        return _imported()


@cache
def _imported() -> Any:
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with warnings.catch_warnings():  # under `-W error` one of its modules would be left half imported
        warnings.simplefilter("ignore")
        import litellm

        litellm.suppress_debug_info = True
        # It loads more of itself at the first call: better here, once, than in many threads. Nothing is sent.
        litellm.completion("openai/any", messages=[{"role": "user", "content": "hi"}], mock_response="hi")
    return litellm


class LiteLLMClient:
    """Calls any model that litellm knows: once, without its retries, fallbacks or downloads.

    Args:
        api_base: Where to send requests; None is the provider's own address, or its environment variable.
        api_key: The key; None is the provider's environment variable.
    """

    def __init__(self, *, api_base: str | None = None, api_key: str | None = None) -> None:
        self._api_base = api_base
        self._api_key = api_key

    def validate(self, model: str) -> None:
        """Check that this process has credentials for `model`. Nothing is sent.

        Raises:
            ModelAccessError: Names the environment variable that is missing.
        """
        if not model:
            raise ModelAccessError("expected the name of a model, such as `openai/gpt-5-mini`, got an empty one")
        if self._api_key or self._has_base(provider_of(model)):
            return
        if missing := _missing_variables(model):
            names = ", ".join(f"`{name}`" for name in missing)
            raise ModelAccessError(f"no credentials for model `{model}`: set the environment variable {names}")

    def complete(self, request: ModelRequest) -> ModelReply:
        """Send one request and wait for the whole answer.

        Raises:
            ModelAccessError: Credentials are missing.
            TransientModelError: The same request may succeed later; carries the provider's Retry-After.
            PermanentModelError: The same request would fail again.
        """
        self.validate(request.model)
        provider = provider_of(request.model)
        received: list[str] = []
        try:
            response = _litellm().completion(**self._arguments(request, provider=provider, received=received))
            body = response.model_dump(warnings=False)
        except Exception as error:
            response = body = _raw_body(error, received=received)
            outcome = _failure(error) if body is None else _parse(body, provider=provider)
        else:
            outcome = _parse(body, provider=provider)
        # Raised here and not while the library's own error is handled: that one may quote the key.
        if isinstance(outcome, ModelError):
            raise self._cleaned(outcome)
        return replace(outcome, cost=_cost(response, usage=outcome.usage, model=request.model))

    def _cleaned(self, error: ModelError) -> ModelError:
        text = redact(conf.clean(str(error)), secrets=[self._api_key or ""])
        error.args = (text[:_LONGEST_MESSAGE],)
        return error

    def _has_base(self, provider: str) -> bool:
        return bool(self._api_base) or (provider == "openai" and any(os.environ.get(name) for name in _OPENAI_BASES))

    def _arguments(self, request: ModelRequest, *, provider: str, received: list[str]) -> Body:
        import httpx

        settings = conf.get()
        body = request_body(request, provider=provider, form=form_for(request.model, forms=settings.REQUEST_FORMS))
        api_key = self._api_key
        if not api_key and self._has_base(provider) and _missing_variables(request.model):
            api_key = "not-needed"  # a local server wants none, but the OpenAI library does
        thinking = _thinking(request)
        return body | {
            "api_base": self._api_base,
            "api_key": api_key,
            "timeout": httpx.Timeout(settings.MODEL_TIMEOUT, connect=min(_CONNECT_SECONDS, settings.MODEL_TIMEOUT)),
            "num_retries": 0,
            "max_retries": 0,
            # litellm throws away what a broken answer said; this hook sees it as it came.
            "logger_fn": lambda details: received.append(str(details.get("original_response") or "")),
            "allowed_openai_params": list(thinking),
            **thinking,
        }


def provider_of(model: str) -> str:
    """Who serves `model`, such as `anthropic`; the part before the slash if litellm does not know."""
    try:
        return str(_litellm().get_llm_provider(model)[1])
    except Exception:
        return model.partition("/")[0]


def _missing_variables(model: str) -> list[str]:
    key = f"{provider_of(model).upper()}_API_KEY"
    if not os.environ.get(key, "-").strip():  # litellm takes an empty one for a key
        return [key]
    return list(_litellm().validate_environment(model)["missing_keys"])


def _thinking(request: ModelRequest) -> Body:
    wanted = request.thinking or {}
    if "budget" in wanted and ("effort" not in wanted or _takes_budget(request.model)):
        return {"thinking": {"type": "enabled", "budget_tokens": wanted["budget"]}}
    return {"reasoning_effort": wanted["effort"]} if "effort" in wanted else {}


def _takes_budget(model: str) -> bool:
    return "thinking" in (_litellm().get_supported_openai_params(model) or [])


def _parse(body: Mapping[str, Any], *, provider: str) -> ModelReply | ModelError:
    try:
        return parse_reply(body, provider=provider)
    except ModelError as error:
        return error


def _raw_body(error: Exception, *, received: list[str]) -> Mapping[str, Any] | None:
    """The answer that litellm could not read, if the provider sent one with status 200."""
    if _headers(error):  # a real HTTP error; litellm makes up responses too, but without headers
        return None
    for text in received:
        try:
            body = json.loads(text)
        except ValueError:
            continue
        if isinstance(body, dict) and ("error" in body or body.get("object") == "chat.completion"):
            return body
    return None


def _failure(error: Exception) -> ModelError:
    headers, status = _headers(error), getattr(error, "status_code", None)
    status = status if isinstance(status, int) else None
    if headers:
        return model_error(f"HTTP {status}: {error}", status_code=status, retry_after=retry_after_of(headers))
    text = f"{type(error).__name__}: {error}"
    if is_transient(status):
        # No answer came. litellm makes up a status: 408 for its own time-outs, 500 for a broken connection.
        return TransientModelError(text, is_lost=not _never_connected(error))
    return model_error(text, status_code=status)


def _never_connected(error: BaseException | None) -> bool:
    """Whether the request did not even leave: somewhere below is an httpx error of connecting."""
    seen = 0
    while error is not None and seen < _DEEPEST_CAUSE:
        if type(error).__name__ in {"ConnectError", "ConnectTimeout", "PoolTimeout"}:
            return True
        error, seen = error.__cause__ or error.__context__, seen + 1
    return False


def _headers(error: Exception) -> Mapping[str, str]:
    """The headers of the provider's answer; empty if there was no answer."""
    response = getattr(error, "response", None)
    return getattr(response, "headers", None) or getattr(error, "litellm_response_headers", None) or {}


def _cost(response: Any, *, usage: Usage | None, model: str) -> Decimal | None:
    """What the call cost; None if unknown. A price that cannot be computed never fails a call that succeeded."""
    if usage is None:
        return None
    try:
        rates = conf.get().COST_RATES.get(model)
        return _listed_cost(response, model=model) if rates is None else cost_of(usage, rates=rates)
    except Exception as error:
        logger.info("no price for model %s: %s", model, type(error).__name__, extra={"event": "model.unpriced"})
        return None


def _listed_cost(response: Any, *, model: str) -> Decimal | None:
    library = _litellm()
    cost = library.completion_cost(completion_response=response, model=model)
    if cost:
        return money(cost)
    # Zero is also what litellm says when its map has no price: believe it only where the map says so.
    entry = library.model_cost.get(model) or library.model_cost.get(model.partition("/")[2]) or {}
    return money(0) if entry.get("input_cost_per_token") == 0 and entry.get("output_cost_per_token") == 0 else None
