from typing import Any

from django.db import models

from example_project.helpdesk.models import Customer, Refund
from example_project.helpdesk.models import Order as HelpDeskOrder

__all__ = ["Order", "Refund"]


class Orders(models.Manager["Order"]):
    def create(self, **values: Any) -> "Order":
        """An order of the tutorial has a number and a status, and nothing else that a table asks for."""
        customer, _ = Customer.objects.get_or_create(name="A reader", email="reader@example.com")
        return super().create(**{"customer": customer, "item": "lamp", "total": 10} | values)


class Order(HelpDeskOrder):
    objects = Orders()

    class Meta:
        app_label = "shop"
        proxy = True
