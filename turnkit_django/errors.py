"""Everything turnkit_django raises.

TurnkitError
├── BudgetError
├── ConfigError
│   └── ModelAccessError
├── InputError
├── ModelError
│   ├── TransientModelError
│   └── PermanentModelError
├── ToolError
│   └── ToolValidationError
├── StateError
│   └── LaneBusy
├── LostClaim
├── UnclaimableTurn
├── IllegalMove          a bug in the package
└── LockOrderViolation   a bug in the package
"""

from __future__ import annotations

from collections.abc import Mapping


class TurnkitError(Exception):
    """Base of the package. Catch it to catch everything below."""


class BudgetError(TurnkitError):
    """A limit was reached. Stored as `error.type` of the failed turn; the message names the limit."""


class ConfigError(TurnkitError):
    """A definition or a setting is wrong. Raised when it is built or first used, and says what to change."""


class ModelAccessError(ConfigError):
    """Credentials for a model are missing. Names the environment variable; fails the turn."""


class InputError(TurnkitError):
    """The application passed text, JSON or an argument that cannot be used. Nothing was written."""


class ModelError(TurnkitError):
    """A model call failed.

    Args:
        message: What happened, without secrets.
        status_code: The provider's HTTP status, or None when there was none.
        is_lost: Whether the request may have been worked on though no answer came, so that its bill is unknown; None:
            there was no status.

    Attributes:
        usage: Token counts that came with the error, by the names of `core.usage.Usage`; set by the client, else None.
    """

    usage: Mapping[str, int] | None = None

    def __init__(self, message: str, *, status_code: int | None = None, is_lost: bool | None = None) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.is_lost = status_code is None if is_lost is None else is_lost


class TransientModelError(ModelError):
    """The same request may succeed later (408, 409, 429, 5xx, no connection): a submitted turn is parked, an inline
    one fails.

    Args:
        retry_after: Seconds the provider asked to wait, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        status_code: int | None = None,
        is_lost: bool | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, status_code=status_code, is_lost=is_lost)
        self.retry_after = retry_after


class PermanentModelError(ModelError):
    """The same request would fail again (400, 401, 403, 404, 422, refused). The engine fails the turn."""


class ToolError(TurnkitError):
    """A tool says that it could not do its work. The model reads the message; the turn goes on."""


class ToolValidationError(ToolError):
    """The model's arguments do not fit the tool. The body was not called; the model reads the message."""


class StateError(TurnkitError):
    """The object is in a state that does not allow the call; the message names both and what to do.

    Also raised for a turn that is to run inside the application's own transaction, which would stay open meanwhile.
    """


class LaneBusy(StateError):
    """The conversation has a started turn, or submitted work before this one: `submit` queues, `run` does not."""


class LostClaim(TurnkitError):
    """Another worker or a person took the turn over. The runner stops quietly; nothing was written."""


class UnclaimableTurn(TurnkitError):
    """The row of a due turn cannot be written. It is set aside, so that it keeps no other turn from running.

    Args:
        turn_id: Which one; the database's error is the cause.
    """

    def __init__(self, turn_id: str) -> None:
        super().__init__(f"{turn_id} is due, but its row cannot be written")
        self.turn_id = turn_id


class IllegalMove(TurnkitError):
    """A move that `core.states` does not list: a bug in turnkit_django."""


class LockOrderViolation(TurnkitError):
    """A lock was asked for after a higher one: a bug in turnkit_django."""
