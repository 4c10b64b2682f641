"""Who hears events besides Django's receivers: the `on_event` of a turn, of its agent, and of the project."""

from __future__ import annotations

from collections.abc import Iterator
from weakref import WeakValueDictionary

from django.utils.module_loading import import_string

from turnkit_django import conf, signals
from turnkit_django.agents import registered
from turnkit_django.core.content import shown
from turnkit_django.core.events import Event, OnEvent, receiver_problem
from turnkit_django.errors import InputError
from turnkit_django.store import outbox


class Follower:
    """Who follows one turn in this process, as long as somebody holds this."""

    __slots__ = ("__weakref__", "on_event")

    def __init__(self, on_event: OnEvent) -> None:
        self.on_event = on_event

    def __reduce__(self) -> tuple[object, ...]:
        return _nobody, ()  # a turn that is pickled, into a cache or to another process, takes no callable along


def _nobody() -> None:
    return None


_followers: WeakValueDictionary[str, Follower] = WeakValueDictionary()


def follow(turn_id: str, on_event: OnEvent | None) -> Follower | None:
    """Call `on_event` with the events of a turn that happen in this process, while the result is held.

    Raises:
        InputError: If it is not a plain callable.
    """
    if on_event is None:
        return None
    if problem := receiver_problem(on_event):
        raise InputError(f"expected `on_event` to be {problem}, got {shown(on_event)}")
    follower = _followers[turn_id] = Follower(on_event)
    return follower


def follow_known(turn_id: str, follower: object) -> None:
    """The turn had been made before, under the same key: it is the one to follow."""
    if isinstance(follower, Follower):
        _followers[turn_id] = follower


def tell(*, event: Event, **_: object) -> None:
    """Call every `on_event` that is meant: the turn's, then the agent's, then the project's."""
    for receiver in _receivers(event):
        outbox.call_safely(receiver, event, name=signals.name_of(receiver))


def _receivers(event: Event) -> Iterator[OnEvent]:
    if event.turn_id is not None and (follower := _followers.get(event.turn_id)) is not None:
        yield follower.on_event
    if (agent := registered().get(event.agent_name)) is not None:
        yield from agent.on_event
    if (path := conf.get().ON_EVENT) is not None:
        yield import_string(path)
