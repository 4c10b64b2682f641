"""Settings of the test suite and of the processes its tests start; `tests/servers.py` sets the two URLs."""

import json
import os

import dj_database_url

SECRET_KEY = "tests only"
USE_TZ = True
TIME_ZONE = "UTC"
ROOT_URLCONF = "tests.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STATIC_URL = "static/"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

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
    "tests.testapp",
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

# The default serves tools that only import the settings, as mypy's plugin does.
DATABASES = {"default": dict(dj_database_url.parse(os.environ.get("DATABASE_URL", "postgresql:///postgres")))}
DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
if DATABASES["default"]["ENGINE"] == "django.db.backends.postgresql":  # a test tries another one
    DATABASES["default"]["OPTIONS"] = {"pool": {"min_size": 0, "max_size": 8, "timeout": 10}}
if test_database := os.environ.get("TURNKIT_TEST_DATABASE"):
    DATABASES["default"]["NAME"] = test_database
DATABASES["default"] |= json.loads(os.environ.get("TURNKIT_TEST_CONNECTION", "{}"))

# Where django-rq finds a URL it ignores the other connection options: timeouts go into the query.
_redis_url = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0")
_timeouts = "socket_connect_timeout=2&socket_timeout=5"
_queue = {"URL": f"{_redis_url}{'&' if '?' in _redis_url else '?'}{_timeouts}", "SERIALIZER": "json"}
# The second queue lets a test decide which of two workers is woken.
RQ_QUEUES = {"turnkit": _queue, "rescue": _queue}
RQ = {"WORKER_CLASS": "turnkit_django.dispatch.Worker"}

TURNKIT = json.loads(os.environ.get("TURNKIT_TEST_SETTINGS", "{}"))
