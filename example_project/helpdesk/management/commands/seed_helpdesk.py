from typing import Any

from django.core.management.base import BaseCommand

from example_project.helpdesk.seed import seed


class Command(BaseCommand):
    help = "Add the example's customers and orders. Running it again changes nothing."

    def handle(self, *args: Any, **options: Any) -> None:
        customers, orders = seed()
        self.stdout.write(f"added {customers} customers and {orders} orders")
