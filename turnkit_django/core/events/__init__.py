"""The catalogue of events: what is told after a commit, one frozen value an event.

An event says what has happened to which turn, in facts and sizes: no prompts, no answers, no arguments and no results.
Texts of errors are those that rows keep, cleaned of secrets and cut.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TypeAlias

from turnkit_django.core.events.base import LONGEST_ERROR as LONGEST_ERROR
from turnkit_django.core.events.base import LONGEST_NAME as LONGEST_NAME
from turnkit_django.core.events.base import Billed as Billed
from turnkit_django.core.events.base import DeliveryEvent as DeliveryEvent
from turnkit_django.core.events.base import Event as Event
from turnkit_django.core.events.base import Explained as Explained
from turnkit_django.core.events.base import MessageEvent as MessageEvent
from turnkit_django.core.events.base import ModelCallEvent as ModelCallEvent
from turnkit_django.core.events.base import ToolCallEvent as ToolCallEvent
from turnkit_django.core.events.base import TurnEvent as TurnEvent
from turnkit_django.core.events.calls import MessageCreated as MessageCreated
from turnkit_django.core.events.calls import ModelCompleted as ModelCompleted
from turnkit_django.core.events.calls import ModelFailed as ModelFailed
from turnkit_django.core.events.calls import ModelRequested as ModelRequested
from turnkit_django.core.events.calls import SubAgentDelegated as SubAgentDelegated
from turnkit_django.core.events.calls import ToolCallCompleted as ToolCallCompleted
from turnkit_django.core.events.calls import ToolCallCreated as ToolCallCreated
from turnkit_django.core.events.calls import ToolCallFailed as ToolCallFailed
from turnkit_django.core.events.calls import ToolCallInterrupted as ToolCallInterrupted
from turnkit_django.core.events.calls import ToolCallSkipped as ToolCallSkipped
from turnkit_django.core.events.calls import ToolCallStarted as ToolCallStarted
from turnkit_django.core.events.deliveries import DeliveryApplied as DeliveryApplied
from turnkit_django.core.events.deliveries import DeliveryDelivered as DeliveryDelivered
from turnkit_django.core.events.deliveries import DeliverySent as DeliverySent
from turnkit_django.core.events.deliveries import DeliverySetAside as DeliverySetAside
from turnkit_django.core.events.turns import TurnCancelled as TurnCancelled
from turnkit_django.core.events.turns import TurnCompleted as TurnCompleted
from turnkit_django.core.events.turns import TurnFailed as TurnFailed
from turnkit_django.core.events.turns import TurnParked as TurnParked
from turnkit_django.core.events.turns import TurnPaused as TurnPaused
from turnkit_django.core.events.turns import TurnPauseRequested as TurnPauseRequested
from turnkit_django.core.events.turns import TurnReady as TurnReady
from turnkit_django.core.events.turns import TurnRecovered as TurnRecovered
from turnkit_django.core.events.turns import TurnReleased as TurnReleased
from turnkit_django.core.events.turns import TurnResumed as TurnResumed
from turnkit_django.core.events.turns import TurnStale as TurnStale
from turnkit_django.core.events.turns import TurnStarted as TurnStarted
from turnkit_django.core.events.turns import TurnSubmitted as TurnSubmitted
from turnkit_django.core.events.turns import TurnWaiting as TurnWaiting

FAMILIES = (TurnEvent, ModelCallEvent, MessageEvent, ToolCallEvent, DeliveryEvent)
CATALOGUE: Mapping[str, type[Event]] = {kind.type: kind for family in FAMILIES for kind in family.__subclasses__()}
"""Every event, by its `type`."""

OnEvent: TypeAlias = Callable[[Event], object]
"""What may be given as `on_event`: called with each event; its result is not looked at."""


def receiver_problem(value: object) -> str:
    """Why `value` cannot be called with an event; empty if it can."""
    if isinstance(value, type) or not callable(value):
        return "a function or another callable of one event"
    try:
        inspect.signature(value).bind(None)
    except TypeError:
        return "a callable that can be called with one event alone"
    except (ValueError, NameError):
        pass  # some builtins have no signature, some annotations no meaning at run time
    is_async = inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(type(value).__call__)
    return "a plain function, since nobody would await an async one" if is_async else ""
