"""A signal to stop is heard whatever an idle worker does at that moment.

RQ answers it with an exception out of the signal's handler. redis-py swallows one in places, and the worker then waited
on for ever; in other places it leaves half an answer in a connection. So: one worker for every few calls that a
worker makes while it looks for work, each told to stop at that call.
"""

import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType

import django_rq
import pytest

from turnkit_django.dispatch import Worker

EVERY = 5
MANY = 150


class Told(Worker):
    """Gets SIGTERM at its `nth` call from the moment on that it listens to signals."""

    nth = 0
    has_looked = False
    told_at = ""

    def subscribe(self) -> None:
        """The channel of RQ's commands has a thread of its own, which may take a second to end."""

    def _install_signal_handlers(self) -> None:
        super()._install_signal_handlers()
        # CPython does not hold the profiler it calls.
        self._counter = self._count
        sys.setprofile(self._counter)

    def _count(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self.nth -= 1
            if self.nth == 0:
                self.told_at = "" if self.has_looked else f"{frame.f_code.co_filename}:{frame.f_lineno}"
                os.kill(os.getpid(), signal.SIGTERM)

    def dequeue_job_and_maintain_ttl(self, *args, **options):
        found = super().dequeue_job_and_maintain_ttl(*args, **options)
        self.has_looked = True
        return found


@pytest.fixture
def _undisturbed() -> Iterator[None]:
    """A worker takes the process's handlers of signals; a `__del__` of what another test left behind swallows one."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    for number, handler in before.items():
        signal.signal(number, handler)


def run_told(nth: int) -> Told:
    worker = Told([django_rq.get_queue("turnkit")], connection=django_rq.get_connection("turnkit"))
    worker.nth = nth
    try:
        worker.work(burst=True, logging_level="WARNING")
    finally:
        sys.setprofile(None)
    return worker


@pytest.mark.usefixtures("empty_redis", "_undisturbed")
def test_a_stop_at_any_call_of_an_idle_worker_ends_it(caplog):
    run_told(0)
    stopped = 0
    with caplog.at_level(logging.ERROR):
        while (worker := run_told(1 + stopped * EVERY)).told_at:
            assert not worker.has_looked, f"a stop at {worker.told_at} was not heard"
            assert caplog.text == "", f"a stop at {worker.told_at} was an accident"
            stopped += 1
    assert stopped > MANY
