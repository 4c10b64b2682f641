from example_project.helpdesk.models import Order, Refund

__all__ = ["Order", "Refund"]
