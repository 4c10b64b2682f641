"""`python -m benchmarks.soak`: thousands of turns while workers are killed and servers fail; exit status 1 if a rule of
the runtime is broken.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys

import django

from benchmarks.command import leave, positive, say
from turnkit_django.testing.servers import embedded_servers

_SECONDS_A_TURN = 1.0
_SECONDS_AT_LEAST = 240


def main(arguments: list[str]) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--turns", type=positive, default=5000, help="at least so many, default %(default)s")
    parser.add_argument("--seed", type=int, help="of the load and of the faults; default: drawn, and told")
    parser.add_argument("--flushes", type=int, default=3, help="how often Valkey is emptied, default %(default)s")
    parser.add_argument("--seconds", type=float, help="when to give up; default: what a slow machine needs")
    given = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    seconds = given.seconds or max(_SECONDS_AT_LEAST, given.turns * _SECONDS_A_TURN)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    say(f"seed {seed}")
    # Fresh servers, whatever the environment names: one is emptied, the other is restarted.
    for name in ("DATABASE_URL", "REDIS_URL"):
        os.environ.pop(name, None)
    with embedded_servers() as servers:
        os.environ |= {
            "DATABASE_URL": servers.database_url,
            "REDIS_URL": servers.redis_url,
            "DJANGO_SETTINGS_MODULE": "benchmarks.soak.settings",
        }
        django.setup()
        from django.core.management import call_command

        from benchmarks.soak.report import text
        from benchmarks.soak.run import Plan, run

        call_command("migrate", run_syncdb=True, verbosity=0)
        report = run(Plan(given.turns, seed, given.flushes, seconds), servers, say)
        sys.stdout.write(f"{text(report)}\n")
    return int(any(report.broken.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
