"""What the commands of this folder share: how they speak, what they refuse, and how they leave."""

from __future__ import annotations

import argparse
import signal
import sys
from typing import NoReturn


def positive(text: str) -> int:
    """A number given on the command line."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, got {text}")
    return number


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def leave(signum: int, _frame: object) -> NoReturn:
    """A handler of signals. A second signal must not interrupt the cleaning up that this one begins."""
    signal.signal(signum, signal.SIG_IGN)
    sys.exit(128 + signum)
