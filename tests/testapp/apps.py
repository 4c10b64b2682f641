from django.apps import AppConfig

import turnkit_django.testing  # noqa: F401  honours TURNKIT_CRASH_AT in every process of the tests


class TestAppConfig(AppConfig):
    name = "tests.testapp"
    label = "testapp"
    default_auto_field = "django.db.models.BigAutoField"
