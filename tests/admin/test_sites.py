"""Other admin sites, and none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.test import Client
from django.urls import path

from tests.admin.rows import family
from turnkit_django.admin import ConversationAdmin, TurnAdmin
from turnkit_django.models import Conversation, Turn

operations = admin.AdminSite(name="operations")
operations.register(Conversation, ConversationAdmin)
operations.register(Turn, TurnAdmin)
urlpatterns = [path("operations/", operations.urls)]


@pytest.mark.django_db
@pytest.mark.urls("tests.admin.test_sites")
def test_the_pages_work_on_another_site_that_has_only_some_of_them(admin_client: Client):
    rows = family()

    for kind in ("turn", "conversation"):
        for url in (f"/operations/turnkit/{kind}/", f"/operations/turnkit/{kind}/{rows[kind].pk}/change/"):
            html = admin_client.get(url).content.decode()
            assert 'href="/admin/' not in html
            assert "/operations/turnkit/message/" not in html
    assert f'href="/operations/turnkit/turn/{quote(rows["turn"].pk)}/change/"' in html
    assert rows["message"].pk in html
    response = admin_client.post("/operations/turnkit/turn/cancel/", {"turns": rows["turn"].pk})
    assert response["Location"] == f"/operations/turnkit/turn/{rows['turn'].pk}/change/"


def test_the_app_starts_and_passes_its_checks_without_the_admin(tmp_path: Path):
    settings = (
        "from tests.settings import *\nINSTALLED_APPS = [a for a in INSTALLED_APPS if a != 'django.contrib.admin']"
    )
    (tmp_path / "without_admin.py").write_text(settings + "\nROOT_URLCONF = 'without_admin'\nurlpatterns = []\n")
    code = (
        "import django, sys; django.setup(); from django.core.management import call_command; call_command('check'); "
    )
    code += "import turnkit_django.models; print([name for name in sys.modules if name == 'turnkit_django.admin'])"
    places = os.pathsep.join([str(tmp_path), *sys.path])
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "without_admin", "PYTHONPATH": places}

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)

    assert (found.returncode, found.stdout.splitlines()[-1:]) == (0, ["[]"]), found.stderr
