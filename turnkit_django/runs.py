"""`Run`: a read view over the whole tree of one root turn."""

from __future__ import annotations

from decimal import Decimal
from typing import cast

from django.db.models import QuerySet

from turnkit_django.core.content import Json
from turnkit_django.core.requests import ModelRequest
from turnkit_django.core.usage import Usage
from turnkit_django.models import Conversation, Message, ToolExecution, Turn
from turnkit_django.store import reads


class Run:
    """What `agent.prepare`, `agent.run` and `agent.submit` return.

    Attributes:
        turn: The root turn, as it was when the run was made or last refreshed.
    """

    def __init__(self, turn: Turn) -> None:
        self.turn = turn

    def __repr__(self) -> str:
        return f"<Run of {self.turn}>"

    def refresh(self) -> Run:
        """Read the root turn again; itself."""
        follower = self.turn.follower
        self.turn = reads.turn(self.turn.pk)
        self.turn.follower = follower
        return self

    @property
    def id(self) -> str:
        return self.turn.pk

    @property
    def status(self) -> str:
        return self.turn.status

    @property
    def output_text(self) -> str:
        return self.turn.output_text

    @property
    def error(self) -> dict[str, Json] | None:
        return cast("dict[str, Json] | None", self.turn.error)

    @property
    def turns(self) -> QuerySet[Turn]:
        """All turns of the tree."""
        return reads.tree(self.turn.pk)

    @property
    def children(self) -> QuerySet[Turn]:
        """The turns that calls of the root turn have started."""
        return self.turns.filter(parent=self.turn.pk)

    @property
    def descendants(self) -> QuerySet[Turn]:
        """All turns of the tree but the root."""
        return self.turns.exclude(pk=self.turn.pk)

    @property
    def failed_turns(self) -> QuerySet[Turn]:
        return self.turns.filter(status=Turn.Status.FAILED)

    @property
    def messages(self) -> QuerySet[Message]:
        """The messages of all conversations of the tree."""
        return reads.messages(reads.tree(self.turn.pk))

    @property
    def tool_executions(self) -> QuerySet[ToolExecution]:
        return reads.executions(reads.tree(self.turn.pk))

    @property
    def usage(self) -> Usage:
        """Tokens of the whole tree."""
        return reads.usage(self.turns)

    @property
    def cost(self) -> Decimal | None:
        """US dollars of the whole tree; None if a part is unknown."""
        return reads.cost(self.turns)

    def preview(self) -> ModelRequest:
        """The request the turn would send now; writes nothing, calls nothing."""
        return self.turn.preview()

    def run(self) -> Run:
        """Run the prepared turn in this process; itself. Raises as `Turn.run`."""
        self.turn = self.turn.run()
        return self

    def submit(self, *, callback: Conversation | None = None) -> Run:
        """Let a worker run the prepared turn; itself. Arguments and errors as of `Turn.submit`."""
        self.turn = self.turn.submit(callback=callback)
        return self

    def pause(self, *, descendants: str = "retain") -> Run:
        """Let the turn stand still; itself. Arguments and errors as of `Turn.pause`, also below."""
        self.turn = self.turn.pause(descendants=descendants)
        return self

    def resume(self, *, descendants: str = "retain") -> Run:
        """Let the paused turn go on; itself."""
        self.turn = self.turn.resume(descendants=descendants)
        return self

    def cancel(self, *, descendants: str = "retain") -> Run:
        """End the turn at once; itself."""
        self.turn = self.turn.cancel(descendants=descendants)
        return self
