"""Cancelling: asked for, confirmed, done through the verb, logged, and counted by what really happened."""

import re
from collections.abc import Callable

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.messages import get_messages
from django.db import DatabaseError
from django.test import Client

from tests.admin.rows import conversation, turn
from tests.concurrency.threads import Held
from turnkit_django import controls
from turnkit_django.admin import actions
from turnkit_django.admin.actions import Outcome
from turnkit_django.admin.turns import TurnAdmin
from turnkit_django.core.ids import new_turn_id
from turnkit_django.models import Turn
from turnkit_django.store import transitions

pytestmark = pytest.mark.django_db(transaction=True)

URL = "/admin/turnkit/turn/cancel/"
LIST = "/admin/turnkit/turn/"


def pending() -> Turn:
    return turn(conversation())


def ended() -> Turn:
    return turn(conversation(), status="completed")


def told(browser: Client, *ids: str) -> str:
    response = browser.post(URL, {"turns": ",".join(ids)})
    (message,) = get_messages(response.wsgi_request)
    return f"{message.level_tag}: {message.message}"


def test_the_button_asks_first_and_the_answer_cancels(operator: Client):
    one = pending()

    page = operator.get(URL, {"turns": one.pk}).content.decode()
    assert "Cancel this turn?" in page
    assert "Yes, cancel 1 turn</button>" in page
    assert Turn.objects.get().status == "pending"

    response = operator.post(URL, {"turns": one.pk}, follow=True)

    assert response.redirect_chain == [(f"{LIST}{one.pk}/change/", 302)]
    assert "1 cancelled." in response.content.decode()
    assert (Turn.objects.get().status, Turn.objects.get().error["type"]) == ("cancelled", "Cancelled")


def test_the_page_that_asks_says_where_it_stands(operator: Client):
    one, two = pending(), pending()

    def crumbs(*ids: str) -> list[str]:
        page = operator.get(URL, {"turns": ",".join(ids)}).content.decode()
        [found] = re.findall(r'<div class="breadcrumbs">(.*?)</div>', page, re.DOTALL)
        return [" ".join(re.sub(r"<[^>]+>", "", each).split()) for each in found.split("&rsaquo;")]

    assert crumbs(one.pk) == ["Home", "Turnkit", "Turns", one.pk, "Cancel"]
    assert crumbs(one.pk, two.pk) == ["Home", "Turnkit", "Turns", "Cancel"]


def test_the_action_asks_first_and_the_answer_cancels_what_was_selected(operator: Client):
    chosen, other, done = pending(), pending(), ended()
    asked = {"action": "cancel_selected", "_selected_action": [chosen.pk, done.pk], "index": "0"}

    page = operator.post(LIST, asked).content.decode()
    assert "Cancel 2 turns?" in page
    assert "1 of them has ended already and stays as it is." in page
    assert f'<input type="hidden" name="turns" value="{done.pk},{chosen.pk}">' in page
    response = operator.post(URL, {"turns": f"{chosen.pk},{done.pk}"}, follow=True)

    assert response.redirect_chain == [(LIST, 302)]
    assert "1 cancelled, 1 was already finished." in response.content.decode()
    assert {each.pk: each.status for each in Turn.objects.all()} == {
        chosen.pk: "cancelled",
        other.pk: "pending",
        done.pk: "completed",
    }


def test_nothing_is_cancelled_when_no_turn_is_selected(operator: Client):
    pending()

    response = operator.post(LIST, {"action": "cancel_selected", "index": "0"}, follow=True)
    assert "Items must be selected" in response.content.decode()
    assert told(operator) == "warning: 0 cancelled."
    assert Turn.objects.get().status == "pending"


def test_there_is_no_button_when_nothing_is_left_to_cancel(operator: Client):
    page = operator.get(URL, {"turns": ended().pk}).content.decode()

    assert "1 of them has ended already" in page
    assert "Yes, cancel" not in page


@pytest.mark.parametrize(
    ("open_count", "ended_count", "gone", "expected"),
    [
        (1, 0, 0, "success: 1 cancelled."),
        (3, 0, 0, "success: 3 cancelled."),
        (3, 1, 0, "warning: 3 cancelled, 1 was already finished."),
        (0, 2, 0, "warning: 2 were already finished."),
        (1, 2, 1, "warning: 1 cancelled, 2 were already finished, 1 no longer exists."),
        (0, 0, 2, "warning: 2 no longer exist."),
    ],
)
def test_the_message_counts_all_that_happened(
    operator: Client, open_count: int, ended_count: int, gone: int, expected: str
):
    ids = [pending().pk for _ in range(open_count)] + [ended().pk for _ in range(ended_count)]

    assert told(operator, *ids, *(new_turn_id() for _ in range(gone))) == expected


def test_each_turn_that_was_cancelled_and_no_other_is_in_the_log_of_the_admin(operator: Client):
    one, two, done = pending(), pending(), ended()

    told(operator, one.pk, two.pk, done.pk, one.pk, new_turn_id())

    entries = LogEntry.objects.all()
    assert {(each.object_id, each.object_repr, each.action_flag, each.change_message) for each in entries} == {
        (each.pk, f"{each.pk} (cancelled)", CHANGE, "Cancelled in the admin.") for each in (one, two)
    }
    assert len(entries) == 2
    assert {each.user for each in entries} == {User.objects.get()}
    history = operator.get(f"{LIST}{one.pk}/history/").content.decode()
    assert "Cancelled in the admin." in history


def test_of_two_people_who_cancel_the_same_turn_one_did_it(operator: Client):
    one = pending()
    first = Held(lambda: controls.cancel_by_id(one.pk))

    second = first.and_behind_it(lambda: actions.cancel_turns([one.pk], note=lambda _turn: None))

    assert second.result() == {Outcome.ENDED: 1}
    assert Turn.objects.get().status == "cancelled"


def test_a_turn_that_cannot_be_cancelled_keeps_no_other_from_it(
    operator: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    good, bad, better = pending(), pending(), pending()
    plain = transitions.cancel

    def cancel(turn_id: str) -> Turn | None:
        if turn_id == bad.pk:
            raise DatabaseError("password=hunter2-hunter2")
        return plain(turn_id)

    monkeypatch.setattr(transitions, "cancel", cancel)

    assert told(operator, good.pk, bad.pk, better.pk) == "warning: 2 cancelled, 1 could not be cancelled: see the log."
    assert sorted(Turn.objects.values_list("status", flat=True)) == ["cancelled", "cancelled", "pending"]
    (record,) = [each for each in caplog.records if each.name == "turnkit"]
    assert bad.pk in record.getMessage()
    assert "hunter2" not in caplog.text


def test_a_turn_whose_log_entry_cannot_be_written_is_not_cancelled():
    one = pending()

    def refuse(_turn: Turn) -> None:
        raise DatabaseError("the log is full")

    assert actions.cancel_turns([one.pk], note=refuse) == {Outcome.FAILED: 1}
    assert Turn.objects.get().status == "pending"


def many(count: int) -> None:
    lane = conversation()
    needed = {"agent_name": "helper", "model": "x", "max_iterations": 1, "max_output_tokens": 1}
    Turn.objects.bulk_create(Turn(conversation=lane, **needed) for _ in range(count))


@pytest.mark.parametrize("entry", ["action", "form"])
def test_more_turns_than_one_request_may_cancel_are_refused_as_a_whole(operator: Client, entry: str):
    many(actions.MOST + 1)
    if entry == "action":
        first = Turn.objects.values_list("pk", flat=True)[0]
        asked = {"action": "cancel_selected", "_selected_action": [first], "select_across": "1", "index": "0"}
        response = operator.post(LIST, asked, follow=True)
    else:
        response = operator.post(URL, {"turns": ",".join(Turn.objects.values_list("pk", flat=True))}, follow=True)

    assert "Nothing was cancelled: at most 1,000 turns at a time." in response.content.decode()
    assert not Turn.objects.exclude(status="pending").exists()


def test_as_many_turns_as_one_request_may_cancel_are_confirmed_on_a_small_page(operator: Client):
    many(actions.MOST)
    first = Turn.objects.values_list("pk", flat=True)[0]
    asked = {"action": "cancel_selected", "_selected_action": [first], "select_across": "1", "index": "0"}

    page = operator.post(LIST, asked).content.decode()

    assert "Cancel 1,000 turns?" in page
    assert "… and 980 more." in page
    assert len(page) < 80_000


def test_cancelling_is_not_one_long_transaction_under_atomic_requests(operator: Client, settings: object):
    from django.db import connections

    one, seen = pending(), []
    plain = transitions.cancel
    connections["default"].settings_dict["ATOMIC_REQUESTS"] = True
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(transitions, "cancel", watched(plain, seen))
            told(operator, one.pk)
    finally:
        connections["default"].settings_dict["ATOMIC_REQUESTS"] = False

    assert seen == [1]


def watched(plain: Callable[[str], object], seen: list[int]) -> Callable[[str], object]:
    """The move, which notes how many transactions are open around it."""
    from django.db import connection

    def run(turn_id: str) -> object:
        seen.append(len(connection.atomic_blocks))
        return plain(turn_id)

    return run


def test_the_verb_says_whether_it_ended_the_turn():
    one = pending()

    assert [controls.cancel_by_id(one.pk), controls.cancel_by_id(one.pk)] == [True, False]
    with pytest.raises(Turn.DoesNotExist):
        controls.cancel_by_id(new_turn_id())


def test_a_site_that_shows_some_turns_only_cancels_no_others(operator: Client, monkeypatch: pytest.MonkeyPatch):
    mine, foreign = pending(), pending()
    monkeypatch.setattr(TurnAdmin, "get_queryset", lambda self, request: Turn.objects.filter(pk=mine.pk))
    assert told(operator, mine.pk, foreign.pk) == "warning: 1 cancelled, 1 no longer exists."
    assert [Turn.objects.get(pk=each.pk).status for each in (mine, foreign)] == ["cancelled", "pending"]
