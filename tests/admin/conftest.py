from collections.abc import Callable

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from tests.admin.rows import KINDS

Login = Callable[..., Client]


@pytest.fixture
def login() -> Login:
    """A browser of a new member of the staff who has these permissions of the app."""

    def staff(*codenames: str, is_staff: bool = True) -> Client:
        user = User.objects.create_user(f"user{User.objects.count()}", password="x", is_staff=is_staff)
        found = Permission.objects.filter(content_type__app_label="turnkit", codename__in=codenames)
        assert len(found) == len(codenames)
        user.user_permissions.set(found)
        client = Client()
        client.force_login(user)
        return client

    return staff


@pytest.fixture
def viewer(login: Login) -> Client:
    """May see all six kinds of rows."""
    return login(*(f"view_{kind}" for kind in KINDS))


@pytest.fixture
def operator(login: Login) -> Client:
    """May also cancel turns."""
    return login(*(f"view_{kind}" for kind in KINDS), "cancel_turn")
