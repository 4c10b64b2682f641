from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

_MISSING = """{error}: the demo needs the packages of turnkit-django[demo].
`make demo` installs them into .venv and runs it; by hand: pip install -e '.[demo]'"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m example_project.demo",
        description="Watch an agent lose its worker to SIGKILL in the middle of its work and finish anyway.",
        epilog="DATABASE_URL, REDIS_URL: use these servers instead of embedded ones. DEMO_MODEL: ask a real model, "
        "such as anthropic/claude-sonnet-4-5, with its provider's key in the environment.",
    )
    parser.add_argument("--once", action="store_true", help="do not ask for more tickets afterwards")
    parser.add_argument("--ticket", metavar="TEXT", help="what the customer writes, instead of the usual complaint")
    options = parser.parse_args(arguments)
    if options.ticket is not None and not options.ticket.strip():
        parser.error("--ticket: expected a text that is not blank")
    try:
        from example_project.demo.run import Demo
        from example_project.demo.terminal import prepare_streams
    except ModuleNotFoundError as error:
        print(_MISSING.format(error=error), file=sys.stderr)
        return 2
    prepare_streams()
    return Demo(ticket=options.ticket, is_once=options.once).run()


if __name__ == "__main__":
    sys.exit(main())
