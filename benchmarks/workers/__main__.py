"""`python -m benchmarks.workers SYSTEM NUMBER`: one worker, until SIGTERM or until its starter is gone."""

import os
import sys
import threading
from importlib import import_module


def _end_with_the_starter() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_starter, daemon=True).start()
    import_module(f"benchmarks.workers.{sys.argv[1]}").run(number=int(sys.argv[2]))
