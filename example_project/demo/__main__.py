from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

_MISSING = """{error}: the demo needs the packages of turnkit-django[demo].
`make demo` installs them into .venv and runs it; by hand: pip install -e '.[demo]'"""

_PORT = 8000
_LAST_PORT = 65_535


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m example_project.demo",
        description="Watch an agent lose its worker to SIGKILL in the middle of its work and finish anyway.",
        epilog="DATABASE_URL, REDIS_URL: use these servers instead of embedded ones. DEMO_MODEL: ask a real model, "
        "such as anthropic/claude-sonnet-4-5, with its provider's key in the environment.",
    )
    parser.add_argument("--once", action="store_true", help="do not open the help desk in the browser afterwards")
    parser.add_argument("--ticket", metavar="TEXT", help="what the customer writes, instead of the usual complaint")
    parser.add_argument(
        "--port",
        type=_port,
        metavar="NUMBER",
        help="of the help desk in the browser: 8000 if not given; "
        "one that is taken is passed over for the next free one",
    )
    options = parser.parse_args(arguments)
    if options.once and options.port:
        parser.error("--port: with --once no help desk is opened")
    if options.ticket is not None and not options.ticket.strip():
        parser.error("--ticket: expected a text that is not blank")
    try:
        from example_project.demo.run import Demo
        from example_project.demo.terminal import prepare_streams
    except ModuleNotFoundError as error:
        print(_MISSING.format(error=error), file=sys.stderr)
        return 2
    prepare_streams()
    return Demo(ticket=options.ticket, port=None if options.once else options.port or _PORT).run()


def _port(text: str) -> int:
    if text.isascii() and text.isdigit() and 1024 <= int(text) <= _LAST_PORT:
        return int(text)
    raise argparse.ArgumentTypeError(f"expected a number from 1024 to {_LAST_PORT}, got {text!r}")


if __name__ == "__main__":
    sys.exit(main())
