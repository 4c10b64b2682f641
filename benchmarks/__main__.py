"""`python -m benchmarks`: measure, and write the raw results; `python -m benchmarks table FILE`: the tables of them."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from benchmarks.command import leave, positive, say
from benchmarks.processes import WorkerError
from benchmarks.run import QUICK, SYSTEMS, Plan, run
from benchmarks.systems.base import WrongWork
from benchmarks.table import PageError, put_into, tables

_RESULTS = Path("build", "benchmarks.json")


def main(arguments: list[str]) -> int:
    """The exit status."""
    if arguments[:1] == ["table"]:
        return _table(arguments[1:])
    return _measure(arguments)


def _measure(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one small round: does it run, not how fast it is")
    parser.add_argument("--rounds", type=positive, help=f"default {Plan().rounds}")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--output", type=Path, default=_RESULTS, help=f"raw results, default {_RESULTS}")
    given = parser.parse_args(arguments)
    if "dbos" in given.systems and find_spec("dbos") is None:
        parser.error("DBOS is not installed: run `make bench`, or leave it out with `--systems turnkit rq`")
    plan = QUICK if given.quick else Plan()
    plan = replace(plan, rounds=given.rounds or plan.rounds)
    signal.signal(signal.SIGTERM, leave)
    try:
        measured = run(plan, given.systems, say)
    except (RuntimeError, WorkerError, WrongWork) as problem:
        say(f"nothing was measured: {problem}")
        return 1
    except KeyboardInterrupt:
        say("stopped; nothing was kept")
        return 130
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(measured, indent=1) + "\n")
    sys.stdout.write(f"{tables(measured)}\n")
    say(f"raw results: {given.output}")
    return 0


def _table(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks table", description="Tables of a run, as Markdown.")
    parser.add_argument("results", type=Path, help="what a run has written")
    parser.add_argument("--into", type=Path, help="a page whose tables are replaced")
    given = parser.parse_args(arguments)
    text = tables(json.loads(given.results.read_text()))
    if given.into is None:
        sys.stdout.write(f"{text}\n")
        return 0
    try:
        given.into.write_text(put_into(given.into.read_text(), text))
    except PageError as problem:
        parser.error(f"{given.into}: {problem}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
