"""Plain `manage.py rqworker turnkit`, with `turnkit_django.dispatch.Worker`; it logs warnings only."""

import os

from django.core.management import execute_from_command_line


def run(*, number: int) -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.settings"
    execute_from_command_line(["manage.py", "rqworker", "turnkit", "--verbosity", "0"])
