from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from tests.example.pages import open_site


@pytest.fixture
def site(db: None, settings: Settings) -> None:
    open_site(settings)


@pytest.fixture
def browser(site: None) -> Callable[..., Client]:
    """A browser in which somebody has logged in."""

    def of(name: str, **options: bool) -> Client:
        client = Client(**options)
        client.force_login(User.objects.get(username=name))
        return client

    return of


@pytest.fixture
def ada(browser: Callable[..., Client]) -> Client:
    return browser("ada@example.com")


@pytest.fixture
def grace(browser: Callable[..., Client]) -> Client:
    return browser("grace@example.com")


@pytest.fixture
def staff(browser: Callable[..., Client]) -> Client:
    return browser("staff@example.com")
