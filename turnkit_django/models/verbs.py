"""The verbs on the models: each hands over to the module that owns the rule.

The imports stand inside the functions, because rows are loaded before the layers above them.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

from turnkit_django.core.content import Json
from turnkit_django.core.explanation import Explanation
from turnkit_django.core.requests import ModelRequest
from turnkit_django.core.usage import Usage

if TYPE_CHECKING:
    from turnkit_django.models.conversation import Conversation
    from turnkit_django.models.message import Message
    from turnkit_django.models.turn import Turn


class ConversationVerbs:
    def say(self, text: str, *, metadata: Mapping[str, Json] | None = None) -> Message:
        """Store a user message; nothing runs.

        Raises:
            InputError: If the text is empty or blank, or the metadata is not a JSON object.
        """
        from turnkit_django import conversations

        return conversations.say(cast("Conversation", self), text, metadata=metadata)

    def prepare(self, text: str | None = None, **options: Any) -> Turn:
        """A pending turn that can be previewed, run or submitted; nothing is called.

        Args:
            text: A user message to store with it.
            options: `key` (idempotency key, unique in the conversation), `model`, `thinking`, `context`, `principal`,
                `on_event` (called with the turn's events that happen in this process while the turn is held).

        Raises:
            InputError: If the text is blank or an option is not usable. Nothing was written.
            StateError: If the key was used for another text.
            ConfigError: If the conversation's agent is not registered.
        """
        from turnkit_django import conversations

        return conversations.prepare(cast("Conversation", self), text, **options)

    def ask(self, text: str, **options: Any) -> Turn:
        """Store a user message and run a turn in this process; the ended turn. Options as in `prepare`.

        With a key that is known already, the first turn is returned as it is: it may not be ended.

        Raises:
            InputError: If the text is blank or an option is not usable. Nothing was written.
            StateError: If called inside the application's own transaction, or the key was used for another text.
            LaneBusy: If the conversation has a started turn or submitted work.
            ConfigError: If the conversation's agent is not registered.
        """
        from turnkit_django import conversations

        return conversations.ask(cast("Conversation", self), text, **options)

    def run(self, **options: Any) -> Turn:
        """Run a turn in this process on what the conversation holds. Options as in `ask`.

        Raises:
            InputError: If an option is not usable. Nothing was written.
            StateError: If called inside the application's own transaction, or the key was used for a text.
            LaneBusy: If the conversation has a started turn or submitted work.
            ConfigError: If the conversation's agent is not registered.
        """
        from turnkit_django import conversations

        return conversations.run_here(cast("Conversation", self), **options)

    def submit(self, text: str, **options: Any) -> Turn:
        """Store a user message and a turn that a worker will run. Options as in `prepare`, without `on_event`.

        May be called inside a transaction: it commits or rolls back with it.

        Raises:
            InputError: If the text is blank or an option is not usable. Nothing was written.
            StateError: If the key was used for another text.
            ConfigError: If the conversation's agent is not registered.
        """
        from turnkit_django import conversations

        return conversations.submit(cast("Conversation", self), text, **options)

    @property
    def usage(self) -> Usage:
        """Tokens of all its turns."""
        from turnkit_django import conversations

        return conversations.usage(cast("Conversation", self))

    @property
    def cost(self) -> Decimal | None:
        """US dollars of all its turns; None if one of them is unknown."""
        from turnkit_django import conversations

        return conversations.cost(cast("Conversation", self))


class TurnVerbs:
    def run(self) -> Turn:
        """Run it in this process; itself, refreshed. A turn that is not pending is only refreshed.

        Raises:
            LaneBusy: If the conversation has another started turn or submitted work.
            StateError: If it is submitted, or inside the application's own transaction.
        """
        from turnkit_django import conversations

        return conversations.run_turn(cast("Turn", self))

    def submit(self) -> Turn:
        """Let a worker run it; itself, refreshed. Submitting it again changes nothing.

        Raises:
            StateError: If it ran or runs in another way.
            InputError: If it was prepared with `on_event`, which a worker cannot call.
        """
        from turnkit_django import conversations

        return conversations.submit_turn(cast("Turn", self))

    def preview(self) -> ModelRequest:
        """The request it would send now; writes nothing, calls nothing.

        Raises:
            ConfigError: If its agent is not registered.
        """
        from turnkit_django.engine import model_call

        return model_call.preview(cast("Turn", self))

    def cancel(self) -> Turn:
        """End it at once, whatever it does; itself, refreshed. An ended turn is only refreshed."""
        from turnkit_django import controls

        return controls.cancel(cast("Turn", self))

    def explain(self) -> Explanation:
        """Why it stands where it stands now, and what would move it; reads its row anew, writes nothing.

        `str()` of the answer is for people, `as_dict()` is JSON; `docs/explain.md` lists the reasons.

        Raises:
            Turn.DoesNotExist: If it is not stored, or was erased.
        """
        from turnkit_django.engine import explain

        return explain.explain(cast("Turn", self).pk)
