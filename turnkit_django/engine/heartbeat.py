"""Keeps the claims of this process alive: one thread, one statement for all of them.

The thread starts with the first claim, after any fork, so that it lives in the process that claims.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from turnkit_django import conf
from turnkit_django.errors import LostClaim
from turnkit_django.store import connections, reads, transitions
from turnkit_django.store.claims import Claim

logger = logging.getLogger("turnkit")

_SKIPPED_SECONDS = 0.05  # until a row that was locked is asked for again


@dataclass(eq=False, slots=True)
class Held:
    """A claim in this process's hands.

    Attributes:
        lease_seconds: How long a renewal lasts.
        renewed_at: Monotonic time of the last write that is known to have held.
        is_lost: Whether a read has shown another token.
        limit_at: Monotonic time after which the step that runs now is not waited for; None between such steps.
    """

    claim: Claim
    lease_seconds: int
    renewed_at: float = field(default_factory=time.monotonic)
    is_lost: bool = False
    limit_at: float | None = None

    def require(self) -> None:
        """Refuse to start something new without the claim.

        Raises:
            LostClaim: If it was taken, or could not be renewed for as long as a lease lives.
        """
        if self.is_lost or time.monotonic() - self.renewed_at > self.lease_seconds:
            raise LostClaim(f"turn {self.claim.turn_id}: the claim was lost or could not be renewed in time")

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Renew the lease no longer than this for the step in the block: what hangs is taken for dead, not for busy."""
        self.limit_at = time.monotonic() + seconds
        try:
            yield
        finally:
            self.limit_at = None

    @property
    def is_over_limit(self) -> bool:
        limit = self.limit_at
        return limit is not None and time.monotonic() > limit

    def wrote(self, claim: Claim) -> None:
        """A write under the claim was stored; each of them renews the lease."""
        self.claim = claim
        self.renewed_at = time.monotonic()


_held: dict[str, Held] = {}
_lock = threading.Lock()
_thread: threading.Thread | None = None
_never = threading.Event()


@contextmanager
def holding(claim: Claim, *, lease_seconds: int) -> Iterator[Held]:
    """Renew the claim until the block ends."""
    held = Held(claim, lease_seconds)
    with _lock:
        _held[claim.token] = held
    # Other connections cannot see rows of a test's transaction, and nobody can take them either.
    if not connections.current().in_atomic_block:
        _start_thread()
    try:
        yield held
    finally:
        with _lock:
            del _held[claim.token]


def tokens() -> frozenset[str]:
    """The claims that this process is working on."""
    with _lock:
        return frozenset(_held)


def _start_thread() -> None:
    global _thread
    with _lock:
        if _thread is None or not _thread.is_alive():  # a forked child has the variable, not the thread
            _thread = threading.Thread(target=_renew_for_ever, name="turnkit-renewer", daemon=True)
            _thread.start()


def _renew_for_ever() -> None:
    is_behind = False
    while True:
        _never.wait(0 if is_behind else conf.get().LEASE_SECONDS / 3)
        try:
            is_behind = not renew_all()
        except Exception as problem:
            # A broken connection is no reason to stop: `Held.require` bounds what may happen meanwhile.
            told = {"event": "lease.not_renewed"}
            logger.error("leases not renewed; trying again: %s", conf.clean_traceback(problem), extra=told)
        finally:
            connections.release()


def renew_all() -> bool:
    """Renew every lease of this process whose step is within its limit; rows that somebody locks are asked for again
    at once.

    Whether all were renewed or lost. It gives up after a third of a lease: the others are due again by then.
    """
    with _lock:
        waiting = [held for held in _held.values() if not held.is_over_limit]
    patience = threading.Event()
    end = time.monotonic() + min((held.lease_seconds for held in waiting), default=0) / 3
    while waiting:
        began = time.monotonic()
        claims = [held.claim for held in waiting]
        renewed = transitions.renew(claims, lease_seconds=waiting[0].lease_seconds) or set()
        for held in waiting:
            if held.claim.turn_id in renewed:
                held.renewed_at = max(held.renewed_at, began)
        waiting = [held for held in waiting if held.claim.turn_id not in renewed and not _note_loss(held)]
        if waiting:
            if time.monotonic() > end:
                return False
            patience.wait(_SKIPPED_SECONDS)
    return True


def _note_loss(held: Held) -> bool:
    """Whether the claim is gone, or let go of by this process. Only a read that shows so is a loss."""
    held.is_lost = reads.token_of(held.claim.turn_id) != held.claim.token
    return held.is_lost or held.claim.token not in tokens()
