"""Two customers and their orders. Running it again changes nothing."""

from decimal import Decimal

from django.contrib.auth.models import User
from django.db import transaction

from example_project.helpdesk.models import Customer, Order

ADA = "ada@example.com"
GRACE = "grace@example.com"
STAFF = "staff@example.com"

_CUSTOMERS = {ADA: "Ada Lovelace", GRACE: "Grace Hopper"}
_ORDERS = (
    (1001, ADA, "blue teapot", "49.90", Order.Status.DELIVERED),
    (1002, ADA, "set of six cups", "36.00", Order.Status.SHIPPED),
    (1003, ADA, "oak tray", "24.50", Order.Status.PAID),
    (2001, GRACE, "glass carafe", "31.00", Order.Status.DELIVERED),
)


@transaction.atomic
def seed() -> tuple[int, int]:
    """Add what is missing; how many customers and orders that were."""
    made = [
        Customer.objects.get_or_create(email=email, defaults={"name": name})[1] for email, name in _CUSTOMERS.items()
    ]
    customers = Customer.objects.in_bulk(_CUSTOMERS, field_name="email")
    orders = [
        Order.objects.get_or_create(
            number=number,
            defaults={"customer": customers[email], "item": item, "total": Decimal(total), "status": status},
        )[1]
        for number, email, item, total, status in _ORDERS
    ]
    return sum(made), sum(orders)


@transaction.atomic
def seed_logins(password: str) -> None:
    """A login for each of the customers, and `STAFF` for the admin; all with this password.

    Raises:
        ValueError: If somebody has one of these names already: the demo would take that login over, and remove it.
    """
    names = (*_CUSTOMERS, STAFF)
    if taken := User.objects.filter(username__in=names).order_by("username").values_list("username", flat=True):
        raise ValueError(f"expected a database without the logins {', '.join(names)}, got {', '.join(taken)}")
    for name in names:
        is_staff = name == STAFF
        user = User.objects.create_user(name, name, password, is_staff=is_staff, is_superuser=is_staff)
        Customer.objects.filter(email=name).update(user=user)


def remove_logins() -> None:
    """Remove what `seed_logins` made; the customers stay."""
    User.objects.filter(username__in=(*_CUSTOMERS, STAFF)).delete()
