"""Every two moves that touch the same rows meet: the first one stands between its locks or before its commit, the
second one comes behind it until it waits or has ended; then both go on.
"""

import difflib
from collections.abc import Callable
from typing import Any

import pytest

from tests.concurrency.actors import WRITTEN, Stage, stage
from tests.concurrency.family import MEETING_NOBODY, WORLDS, Move, World
from turnkit_django.engine import reconcile
from turnkit_django.errors import LostClaim, StateError, ToolError
from turnkit_django.models import Turn
from turnkit_django.store import moves, transitions
from turnkit_django.store.moves import TRANSITIONS
from turnkit_django.store.transitions import delivering
from turnkit_django.testing import assert_clean, drain, text

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("no_deadlock")]

REFUSALS = (LostClaim, StateError, ToolError)
drained: set[str] = set()
"""How turns and messages stood when they were drained: many pairs leave them alike."""


class NoQueue:
    """Wake-ups that go nowhere."""

    def send_wake(self) -> None:
        pass

    note_reconcile = last_reconcile = send_wake

    def is_stopping(self) -> bool:
        return False


@pytest.fixture(autouse=True)
def calm(
    monkeypatch: pytest.MonkeyPatch,
    configure: Callable[[dict[str, Any]], None],
    turnkit_model: Callable[[Any], object],
) -> None:
    """No queue, no back-off, and a model that is content."""
    configure({"DISPATCHER": f"{__name__}.NoQueue"})
    monkeypatch.setattr(moves, "_PATIENCE_SECONDS", 30)  # a cycle of locks is told as such
    for module in (reconcile, delivering):
        monkeypatch.setattr(module, "recovery_delay", lambda attempts: 0)
    turnkit_model(lambda request: text("done"))


def drain_to_the_end() -> None:
    """Workers that have gone are replaced, what is paused goes on, and everything that is due is run."""
    for turn in Turn.objects.filter(status="running"):
        transitions.recover(turn.pk, token=turn.claim_token, max_recoveries=3, seconds=0, is_dead=True)
    for turn in Turn.objects.filter(status="paused"):
        transitions.resume(turn.pk, is_cascade=False)
    drain(max_seconds=5)
    assert not Turn.objects.unfinished().submitted().exists()
    assert_clean()


Outcome = tuple[str, str, str]
"""How the first and the second move end, and the rows."""


def kind(end: BaseException | None) -> str:
    return "" if end is None else type(end).__name__


class Meetings:
    """The moves of a world, two by two; what was wrong."""

    def __init__(self, scene: Stage) -> None:
        self.scene = scene
        self.found: list[str] = []
        self._one_by_one: dict[tuple[Move, Move], Outcome] = {}
        self._met: set[frozenset[Move]] = set()

    def of(self, first: Move, second: Move) -> None:
        self._meet(first, second, WRITTEN)
        if first.may_cross(second) and frozenset((first, second)) not in self._met:
            self._met.add(frozenset((first, second)))
            for stop in range(2, self.scene.locking(first) + 1):
                self._meet(first, second, stop)

    def _meet(self, first: Move, second: Move, stop: int) -> None:
        scene, where = self.scene, f"{first} ({stop}) {second}"
        scene.reset()
        if not scene.holding(first, stop):
            self.found.append(f"{where}: it did not stop: {scene.let_go()!r}")
            return
        waits, theirs = scene.behind(second)
        ends = scene.let_go(), theirs.exception(30)
        outcome = kind(ends[0]), kind(ends[1]), scene.picture()
        if scene.count_of_deadlocks():
            self.found.append(f"{where}: deadlock")
        if unexpected := [end for end in ends if end is not None and not isinstance(end, REFUSALS)]:
            self.found.append(f"{where}: raised {unexpected!r}")
        if stop == WRITTEN and waits != second.waits_for(first):
            self.found.append(f"{where}: {'it waits' if waits else 'it does not wait'}")
        self._drain(where)
        if not (first.passes_over or second.passes_over):
            self._compare(where, first, second, outcome, is_swap_allowed=stop != WRITTEN)

    def _compare(self, where: str, first: Move, second: Move, outcome: Outcome, *, is_swap_allowed: bool) -> None:
        """It must have come as if the one had followed the other."""
        expected = self._after(first, second)
        if outcome == expected:
            return
        if is_swap_allowed:
            theirs, mine, rows = self._after(second, first)
            if outcome == (mine, theirs, rows):
                return
        unlike = difflib.unified_diff(expected[2].splitlines(), outcome[2].splitlines(), n=0, lineterm="")
        self.found.append(f"{where}: {outcome[:2]}, one by one {expected[:2]}\n" + "\n".join(unlike))

    def _after(self, first: Move, second: Move) -> Outcome:
        if (first, second) not in self._one_by_one:
            self.scene.reset()
            ends = self.scene.alone(first), self.scene.alone(second)
            self._one_by_one[first, second] = kind(ends[0]), kind(ends[1]), self.scene.picture()
        return self._one_by_one[first, second]

    def _drain(self, where: str) -> None:
        standing = self.scene.standing()
        if standing in drained:
            return
        drained.add(standing)
        try:
            drain_to_the_end()
        except AssertionError as problem:
            self.found.append(f"{where}: {problem}")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_two_moves_at_once_come_to_what_one_by_one_gives(world: World):
    with stage(world.build()) as scene:
        meetings = Meetings(scene)
        for first in world.everybody:
            for second in world.behind(first):
                meetings.of(first, second)
    assert not meetings.found, "\n".join(meetings.found)


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_a_move_takes_the_locks_that_are_said(world: World):
    with stage(world.build()) as scene:
        found = {}
        for move in world.everybody:
            scene.reset()
            assert scene.holding(move), f"{move}: {scene.let_go()!r}"
            found[str(move)] = scene.taken()
            assert scene.let_go() is None
    said = {str(move): {name for name in move.taken if not name.startswith("=")} for move in world.everybody}
    assert found == said


def test_every_transition_meets_the_others():
    met = {move.transition for world in WORLDS for move in world.everybody}
    assert met | set(MEETING_NOBODY) == set(TRANSITIONS)
    assert not met & set(MEETING_NOBODY)
