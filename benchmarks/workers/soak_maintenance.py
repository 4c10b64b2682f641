"""Plain `manage.py turnkit_reconcile --loop 1` in the project of the soak."""

import os

from django.core.management import execute_from_command_line


def run(*, number: int) -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.soak.settings"
    execute_from_command_line(["manage.py", "turnkit_reconcile", "--loop", "1", "--verbosity", "0"])
