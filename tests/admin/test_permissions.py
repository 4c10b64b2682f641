"""Who may see and do what."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.admin.rows import KINDS, conversation, family, turn
from turnkit_django.models import Turn

pytestmark = pytest.mark.django_db

Login = Callable[..., Client]
CANCEL = "/admin/turnkit/turn/cancel/"


def paths(kind: str, key: str) -> list[str]:
    own = [f"/admin/turnkit/{kind}/", f"/admin/turnkit/{kind}/{key}/change/", f"/admin/turnkit/{kind}/{key}/delete/"]
    return [*own, f"/admin/turnkit/{kind}/{key}/history/", f"/admin/turnkit/{kind}/{key}/value/context/"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_stranger_is_sent_to_the_login(client: Client, login: Login, kind: str):
    row = family()[kind]
    for browser in (client, login(is_staff=False)):
        for path in [*paths(kind, row.pk), CANCEL]:
            response = browser.get(path)
            assert (response.status_code, response["Location"]) == (302, f"/admin/login/?next={path}")


@pytest.mark.parametrize("kind", KINDS)
def test_staff_see_only_the_kinds_they_may_view(login: Login, kind: str):
    rows = family()
    browser = login(f"view_{kind}", "cancel_turn")

    for other, row in rows.items():
        found = {browser.get(path).status_code for path in paths(other, row.pk)[:2]}
        assert found == ({200} if other == kind else {403}), other
        if other != kind:
            assert {browser.get(path).status_code for path in paths(other, row.pk)} == {403}
            assert {browser.post(path).status_code for path in paths(other, row.pk)} == {403}


@pytest.mark.parametrize("kind", KINDS)
def test_not_even_a_superuser_may_add_or_change(admin_client: Client, kind: str):
    row = family()[kind]
    before = type(row).objects.filter(pk=row.pk).values().get()

    assert admin_client.get(f"/admin/turnkit/{kind}/add/").status_code == 403
    assert admin_client.post(f"/admin/turnkit/{kind}/add/", {"agent_name": "x"}).status_code == 403
    assert admin_client.post(f"/admin/turnkit/{kind}/{row.pk}/change/", {"agent_name": "x"}).status_code == 403
    assert admin_client.post(f"/admin/turnkit/{kind}/add/", {"_saveasnew": "1"}).status_code == 403
    assert type(row).objects.filter(pk=row.pk).values().get() == before


def test_who_may_only_view_is_not_shown_how_to_cancel(viewer: Client):
    owner = turn(conversation())

    for path in ("/admin/turnkit/turn/", f"/admin/turnkit/turn/{owner.pk}/change/"):
        assert "ancel" not in viewer.get(path).content.decode().replace("ancelled", "").replace("cancel()", "")


@pytest.mark.parametrize("method", ["get", "post"])
def test_who_may_only_view_cannot_cancel(viewer: Client, method: str):
    owner = turn(conversation())

    assert getattr(viewer, method)(CANCEL, {"turns": owner.pk}).status_code == 403
    action = {"action": "cancel_selected", "_selected_action": [owner.pk], "index": "0"}
    assert viewer.post("/admin/turnkit/turn/", action).status_code == 403
    assert Turn.objects.get().status == "pending"


def test_who_may_cancel_but_not_view_cannot_either(login: Login):
    owner = turn(conversation())

    assert login("cancel_turn").post(CANCEL, {"turns": owner.pk}).status_code == 403
    assert Turn.objects.get().status == "pending"


def test_who_may_cancel_is_shown_how_while_there_is_something_to_cancel(operator: Client, admin_client: Client):
    pending, ended = turn(conversation()), turn(conversation(), status="failed")

    for browser in (operator, admin_client):
        assert "Cancel selected turns" in browser.get("/admin/turnkit/turn/").content.decode()
        page = browser.get(f"/admin/turnkit/turn/{pending.pk}/change/").content.decode()
        assert f'href="{CANCEL}?turns={pending.pk}"' in page
        assert CANCEL not in browser.get(f"/admin/turnkit/turn/{ended.pk}/change/").content.decode()


def test_cancelling_needs_the_token_of_the_form(operator: Client):
    owner = turn(conversation())
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(User.objects.get())

    assert strict.post(CANCEL, {"turns": owner.pk}).status_code == 403
    assert Turn.objects.get().status == "pending"
