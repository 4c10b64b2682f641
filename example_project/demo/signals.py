"""Ctrl-C at any moment, without losing track of what was just started."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Signals:
    """Remembers that the demo was told to stop; the places that can stop ask for it.

    A KeyboardInterrupt raised anywhere could come between the start of a process and the line that remembers it.
    """

    def __init__(self) -> None:
        self._is_told = False

    @contextmanager
    def caught(self) -> Iterator[None]:
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup wants the demo to outlive its terminal
            numbers.append(signal.SIGHUP)
        before = {number: signal.signal(number, self._on_signal) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._is_told = True

    def check(self) -> None:
        """Stop here if the demo was told to.

        Raises:
            KeyboardInterrupt: It was.
        """
        if self._is_told:
            raise KeyboardInterrupt

    def pause(self, seconds: float) -> None:
        """Wait between two looks at a condition. Raises as `check`."""
        time.sleep(seconds)
        self.check()
