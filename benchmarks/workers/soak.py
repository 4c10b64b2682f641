"""Plain `manage.py rqworker turnkit` in the project of the soak."""

import os

from django.core.management import execute_from_command_line


def run(*, number: int) -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.soak.settings"
    execute_from_command_line(["manage.py", "rqworker", "turnkit", "--verbosity", "0"])
