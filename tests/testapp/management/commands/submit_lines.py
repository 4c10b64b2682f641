import sys

from django.core.management.base import BaseCommand

from turnkit_django import get_agent


class Command(BaseCommand):
    help = "Submit each line of the standard input to an agent, each in a new conversation; print the turns' ids."

    def add_arguments(self, parser):
        parser.add_argument("agent")

    def handle(self, *, agent, **options):
        # Not `for line in sys.stdin`, which reads ahead.
        for line in iter(sys.stdin.readline, ""):
            turn = get_agent(agent).conversation().submit(line.strip())
            self.stdout.write(f"submitted {turn.pk}")
            self.stdout.flush()
