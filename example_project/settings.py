"""Settings of the example, read from the environment.

DATABASE_URL                where the rows are: a PostgreSQL (required)
REDIS_URL                   where wake-ups go; default redis://127.0.0.1:6379/0
DEFAULT_MODEL               any litellm model; default openai/gpt-5-mini
DEBUG                       0 switches it off; then these are required:
SECRET_KEY, ALLOWED_HOSTS   the latter separated by commas
STATIC_ROOT                 where `collectstatic` puts the files that a web server serves below /static/
"""

import os
from pathlib import Path
from typing import Any

import dj_database_url
from django.core.exceptions import ImproperlyConfigured

BASE_DIR = Path(__file__).resolve().parent.parent


def _required(name: str, advice: str) -> str:
    if value := os.environ.get(name, "").strip():
        return value
    raise ImproperlyConfigured(f"The environment variable {name} is not set. {advice}")


def _database(url: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = dict(dj_database_url.parse(url, conn_health_checks=True))
    except ValueError as error:
        # The URL itself may hold a password.
        raise ImproperlyConfigured(
            f"DATABASE_URL is not a database's address: {type(error).__name__}. "
            "Write postgresql://user:password@host:5432/name"
        ) from None
    if found["ENGINE"] == "django.db.backends.postgresql":
        # A worker gives its connection back before each slow call, so a pool serves more turns than it has connections.
        found["OPTIONS"] = {**found.get("OPTIONS", {}), "pool": {"min_size": 0, "max_size": 8, "timeout": 10}}
    return found


DEBUG = os.environ.get("DEBUG", "1").lower() not in {"0", "false", "no", "off"}
if DEBUG:
    SECRET_KEY = "only for trying the example out"
    ALLOWED_HOSTS: list[str] = []
else:
    SECRET_KEY = _required(
        "SECRET_KEY",
        'Without DEBUG it must be a long random text: python -c "import secrets; print(secrets.token_urlsafe(64))"',
    )
    ALLOWED_HOSTS = _required("ALLOWED_HOSTS", "Without DEBUG it names the site's hosts, such as a.example").split(",")
    SECURE_SSL_REDIRECT = True
    SECURE_HSTS_SECONDS = 365 * 24 * 3600
    SECURE_HSTS_INCLUDE_SUBDOMAINS = True
    SECURE_HSTS_PRELOAD = True
    SESSION_COOKIE_SECURE = True
    CSRF_COOKIE_SECURE = True

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "django_htmx",
    "django_rq",
    "turnkit_django",
    "example_project.helpdesk",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
ROOT_URLCONF = "example_project.urls"
WSGI_APPLICATION = "example_project.wsgi.application"
ASGI_APPLICATION = "example_project.asgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STATIC_URL = "static/"
STATIC_ROOT = os.environ.get("STATIC_ROOT") or None
LOGIN_URL = "helpdesk:login"
LOGIN_REDIRECT_URL = "helpdesk:tickets"
LOGOUT_REDIRECT_URL = "helpdesk:login"
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True

DATABASES = {
    "default": _database(
        _required(
            "DATABASE_URL",
            "Write postgresql://user:password@host:5432/name into it, "
            "or run `make demo`, which brings a PostgreSQL and a Redis of its own.",
        )
    )
}

RQ_QUEUES = {"turnkit": {"URL": os.environ.get("REDIS_URL") or "redis://127.0.0.1:6379/0", "SERIALIZER": "json"}}
# With this worker a plain `manage.py rqworker turnkit` can read the wake-ups, which are JSON.
RQ = {"WORKER_CLASS": "turnkit_django.dispatch.Worker"}

TURNKIT: dict[str, Any] = {
    "DEFAULT_MODEL": os.environ.get("DEFAULT_MODEL") or "openai/gpt-5-mini",
    "QUEUE": "turnkit",
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": "INFO"},
}
