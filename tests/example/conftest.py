from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

PASSWORD = "of all logins"


@pytest.fixture
def site(db: None, settings: Settings) -> None:
    """The example's pages, its customers and their logins."""
    from example_project.helpdesk.seed import seed, seed_logins

    settings.ROOT_URLCONF = "example_project.urls"
    settings.LOGIN_URL = "helpdesk:login"
    settings.LOGIN_REDIRECT_URL = "helpdesk:tickets"
    settings.LOGOUT_REDIRECT_URL = "helpdesk:login"
    seed()
    seed_logins(PASSWORD)


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
