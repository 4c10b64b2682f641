import pytest
from django.core.management import call_command


@pytest.mark.django_db
def test_the_migrations_describe_the_models() -> None:
    # Exits with status 1 when a migration is missing.
    call_command("makemigrations", check=True, dry_run=True)
