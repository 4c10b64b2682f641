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
    from turnkit_django.deliveries import InputStatus
    from turnkit_django.models.conversation import Conversation
    from turnkit_django.models.delivery import Delivery
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
        """Store a user message and a turn that a worker will run.

        May be called inside a transaction: it commits or rolls back with it.

        Args:
            options: As in `prepare`, without `on_event`, and `callback`: a conversation that is sent the result when
                the turn has ended, however it ended.

        Raises:
            InputError: If the text is blank or an option is not usable. Nothing was written.
            StateError: If the key was used for another text, or with another callback.
            ConfigError: If the conversation's agent is not registered.
        """
        from turnkit_django import conversations

        return conversations.submit(cast("Conversation", self), text, **options)

    def post(self, text: str, *, key: str, principal: Json = None) -> Delivery:
        """Send a message to this conversation: `send` with itself as source and destination."""
        from turnkit_django import deliveries

        return deliveries.post(cast("Conversation", self), text, key=key, principal=principal)

    def send(self, destination: Conversation, text: str, *, key: str, principal: Json = None) -> Delivery:
        """Send a message to another conversation, whose agent reads it as soon as it is free.

        May be called inside a transaction: it commits or rolls back with it.

        Args:
            destination: Where to; a saved conversation.
            key: Names the message among those of this conversation: sending it again gives the same row.
            principal: Who sends it, any JSON; kept with the message. The turn that reads it acts as the destination.

        Raises:
            InputError: If an argument is not usable. Nothing was written.
            ToolError: If the key was used for another message.
        """
        from turnkit_django import deliveries

        return deliveries.send(cast("Conversation", self), destination, text, key=key, principal=principal)

    def input_status(self, delivery: Delivery) -> InputStatus:
        """Whether a model call has included a message of this conversation's inbox, and which.

        Raises:
            InputError: If the delivery is for another conversation.
            Delivery.DoesNotExist: If it was erased.
        """
        from turnkit_django import deliveries

        return deliveries.input_status(cast("Conversation", self), delivery)

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

    def submit(self, *, callback: Conversation | None = None) -> Turn:
        """Let a worker run it; itself, refreshed. Submitting it again changes nothing.

        Args:
            callback: A conversation that is sent the result when the turn has ended, however it ended.

        Raises:
            StateError: If it ran or runs in another way, or was submitted with another callback.
            InputError: If it was prepared with `on_event`, which a worker cannot call.
        """
        from turnkit_django import conversations

        return conversations.submit_turn(cast("Turn", self), callback=callback)

    def wait_for(self, *targets: Turn | str) -> Turn:
        """Let it start only when all the targets have ended, however they end; itself, refreshed.

        Their results come to it as one message at its start. Naming a target again changes nothing. May be called
        inside a transaction: it commits or rolls back with it.

        Args:
            targets: Turns, or their ids: submitted or ended, in other conversations.

        Raises:
            InputError: If there is no target, or one is no turn and no id.
            StateError: If it is not pending or was started; if a target is not stored, not submitted, itself, or
                unfinished in its own conversation; or if the wait would close a cycle. No wait is stored.
        """
        from turnkit_django import controls

        return controls.wait_for(cast("Turn", self), targets)

    def retry(self) -> Turn:
        """Submit a new turn that tries again what this failed one was for: its message, its calls and their results
        are what the new one sees. An unfinished retry is returned instead of a second one.

        May be called inside a transaction: it commits or rolls back with it.

        Raises:
            StateError: If it has not failed, is a sub-agent's, or a retry of it has completed.
            ConfigError: If its agent is not registered.
        """
        from turnkit_django import controls

        return controls.retry(cast("Turn", self))

    def preview(self) -> ModelRequest:
        """The request it would send now; writes nothing, calls nothing.

        Raises:
            ConfigError: If its agent is not registered.
        """
        from turnkit_django.engine import model_call

        return model_call.preview(cast("Turn", self))

    def pause(self, *, descendants: str = "retain") -> Turn:
        """Let it stand still; itself, refreshed. A running turn does so before its next step, and keeps what it has.

        Paused before it is submitted, it does not start when it is. A paused turn keeps its place: what stands behind
        it in its conversation waits. Its deadline runs on. An ended or paused turn is only refreshed. May be called
        inside a transaction: it commits or rolls back with it.

        Args:
            descendants: `"retain"`: it alone; `"cascade"`: with all turns that its calls have started, and theirs.

        Raises:
            InputError: If `descendants` is anything else. Nothing was written.
            Turn.DoesNotExist: If it is not stored, or was erased.
        """
        from turnkit_django import controls

        return controls.pause(cast("Turn", self), descendants=descendants)

    def resume(self, *, descendants: str = "retain") -> Turn:
        """Let a paused turn go on from where it stands; itself, refreshed. Any other is only refreshed.

        If it is running and was told to pause, it need not any more. A turn that was not submitted is pending again:
        `run()` or `submit()` it. Arguments and errors as in `pause`.
        """
        from turnkit_django import controls

        return controls.resume(cast("Turn", self), descendants=descendants)

    def cancel(self, *, descendants: str = "retain") -> Turn:
        """End it at once, whatever it does; itself, refreshed. An ended turn is only refreshed.

        Arguments and errors as in `pause`.
        """
        from turnkit_django import controls

        return controls.cancel(cast("Turn", self), descendants=descendants)

    def explain(self) -> Explanation:
        """Why it stands where it stands now, and what would move it; reads its row anew, writes nothing.

        `str()` of the answer is for people, `as_dict()` is JSON; `docs/explain.md` lists the reasons.

        Raises:
            Turn.DoesNotExist: If it is not stored, or was erased.
        """
        from turnkit_django.engine import explain

        return explain.explain(cast("Turn", self).pk)
