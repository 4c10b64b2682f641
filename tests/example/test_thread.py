"""A ticket's page follows its conversation: only what is new is sent, and the end ends the polling."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from example_project.helpdesk.models import Ticket
from example_project.helpdesk.thread import MOST_MESSAGES
from tests.example.pages import address, entries, open_by_form, poll_of, word, write
from turnkit_django.models import Turn
from turnkit_django.testing import Crash, ScriptedModel, call, crash_at, text

Model = Callable[..., ScriptedModel]
Drain = Callable[[], int]


def test_a_poll_gets_nothing_while_nothing_is_new(ada: Client) -> None:
    ticket = open_by_form(ada, "Where is it?")
    poll = poll_of(ada.get(address(ticket)).text)
    assert poll

    response = ada.get(poll)

    assert (response.status_code, response.content) == (204, b"")


def test_a_poll_gets_what_is_new_and_the_last_one_ends_the_polling(
    ada: Client, turnkit_model: Model, turnkit_drain: Drain
) -> None:
    turnkit_model([call("lookup_order", {"order_number": 1001}), text("It is delivered.")])
    ticket = open_by_form(ada, "Where is order 1001?")
    poll = poll_of(ada.get(address(ticket)).text)
    assert poll
    turnkit_drain()

    news = ada.get(poll).text

    assert entries(news) == ["Looked up order 1001", "It is delivered."]
    assert 'hx-swap-oob="beforeend:#thread"' in news
    assert word(news) == "answered"
    assert poll_of(news) is None
    assert "Cancel" not in news
    assert poll_of(ada.get(address(ticket)).text) is None


def test_a_page_calls_its_reader_you(ada: Client, staff: Client) -> None:
    ticket = open_by_form(ada, "Mine.")

    for rest in ("", "news/0/"):
        assert '<p class="who">You' in ada.get(address(ticket, rest)).text
        assert '<p class="who">Customer' in staff.get(address(ticket, rest)).text


def test_the_page_tells_what_is_done_right_now(ada: Client, turnkit_model: Model, turnkit_drain: Drain) -> None:
    turnkit_model([call("lookup_order", {"order_number": 1001}), text("Done.")])
    ticket = open_by_form(ada, "Where is order 1001?")
    before = poll_of(ada.get(address(ticket)).text)
    assert before

    with crash_at("reserved"), pytest.raises(Crash):
        turnkit_drain()
    thinking = ada.get(before).text
    assert (word(thinking), entries(thinking)) == ("working", [])
    assert "The help desk is writing an answer." in thinking
    assert "<ol" not in thinking
    after = poll_of(thinking)
    assert after
    assert ada.get(after).status_code == 204


def test_a_running_tool_is_told_in_words(ada: Client, turnkit_model: Model, turnkit_drain: Drain) -> None:
    turnkit_model([call("lookup_order", {"order_number": 1001}), text("Done.")])
    ticket = open_by_form(ada, "Where is order 1001?")

    with crash_at("tool_returned"), pytest.raises(Crash):
        turnkit_drain()

    assert "Looking up order 1001." in ada.get(address(ticket)).text


def test_polling_stops_for_who_has_logged_out(ada: Client) -> None:
    ticket = open_by_form(ada, "Mine.")
    ada.logout()

    asked = ada.get(address(ticket, "news/0/"), headers={"HX-Request": "true"})

    assert asked["HX-Refresh"] == "true"
    assert asked.content == b""
    assert ada.get(address(ticket, "news/0/")).status_code == 404


@pytest.mark.parametrize("after", ["-1", "x", "9" * 5000])
def test_news_after_no_number_are_not_found(ada: Client, after: str) -> None:
    ticket = open_by_form(ada, "Mine.")

    assert ada.get(address(ticket, f"news/{after}/")).status_code == 404


def test_news_after_a_number_that_is_not_reached_are_none(ada: Client) -> None:
    ticket = open_by_form(ada, "Mine.")

    news = ada.get(address(ticket, "news/99999999999999999999/"))

    assert news.status_code == 200
    assert entries(news.text) == []


def test_without_scripts_there_is_a_link_to_look_again(ada: Client, turnkit_model: Model, turnkit_drain: Drain) -> None:
    turnkit_model([text("Done.")])
    ticket = open_by_form(ada, "Where is it?")
    assert f'<noscript><p><a href="{address(ticket)}">' in ada.get(address(ticket)).text

    turnkit_drain()
    assert "<noscript>" not in ada.get(address(ticket)).text


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("lookup_order", {"order_number": 9999}, "Could not find order 9999"),
        ("lookup_order", {"order_number": "secret"}, "Could not find an order"),
        ("lookup_order", {"order_number": -5}, "Could not find an order"),
        ("list_orders", {}, "Looked through your orders"),
        ("refund", {"order_number": 1001, "amount": "49.90", "reason": "secret"}, "Refunded order 1001"),
        ("refund", {"order_number": 1001, "amount": "99.90", "reason": "secret"}, "Could not refund order 1001"),
        ("add_note", {"text": "secret"}, "Left a note for our staff"),
        ("secret_tool", {"secret": 1}, "Tried a step that did not work"),
        ("add_note", '{"text": secret', "Could not leave a note for our staff"),
    ],
)
def test_tool_calls_are_told_in_words_and_keep_what_is_the_staffs(
    ada: Client, turnkit_model: Model, turnkit_drain: Drain, tool: str, arguments: object, told: str
) -> None:
    turnkit_model([call(tool, arguments), text("Done.")])
    ticket = open_by_form(ada, "Please.")
    turnkit_drain()

    page = ada.get(address(ticket)).text

    assert entries(page) == ["Please.", told, "Done."]
    assert "secret" not in page


def test_an_interrupted_refund_is_told_as_not_known(ada: Client, turnkit_model: Model, turnkit_drain: Drain) -> None:
    from turnkit_django.models import ToolExecution

    turnkit_model([call("refund", {"order_number": 1001, "amount": "1.00", "reason": "r"}), text("Done.")])
    ticket = open_by_form(ada, "Please.")
    turnkit_drain()
    ToolExecution.objects.update(status="interrupted")

    assert "it is not known yet whether that worked" in ada.get(address(ticket)).text


def test_a_failure_is_told_decently(ada: Client, turnkit_model: Model, turnkit_drain: Drain) -> None:
    turnkit_model([{"error": {"status": 400, "message": "secret traceback"}}])
    ticket = open_by_form(ada, "Where is it?")
    turnkit_drain()

    page = ada.get(address(ticket)).text

    assert word(page) == "failed"
    assert "Something went wrong on our side" in page
    assert "secret" not in page
    assert poll_of(page) is None


def test_a_question_that_failed_is_marked_once_the_next_one_is_asked(
    ada: Client, turnkit_model: Model, turnkit_drain: Drain
) -> None:
    turnkit_model([{"error": {"status": 400}}, text("Done.")])
    ticket = open_by_form(ada, "One?")
    turnkit_drain()

    page = write(ada, ticket, "Two?")

    assert page.count("Could not be answered") == 1
    assert page.index("One?") < page.index("Could not be answered") < page.index("Two?")


def test_a_turn_whose_worker_was_lost_says_so(ada: Client) -> None:
    ticket = open_by_form(ada, "Where is it?")
    Turn.objects.update(attempts=1)

    assert "Its worker was lost. Another one goes on" in ada.get(address(ticket)).text


def test_an_answer_that_was_cut_off_is_not_shown(ada: Client, turnkit_model: Model, turnkit_drain: Drain) -> None:
    cut = {"message": {"content": "It is on its"}, "finish_reason": "length"}
    turnkit_model([{"raw": cut}, text("It is on its way.")])
    ticket = open_by_form(ada, "Where is it?")
    turnkit_drain()

    assert entries(ada.get(address(ticket)).text) == ["Where is it?", "It is on its way."]


def test_a_long_thread_shows_its_end_and_says_so(
    ada: Client, django_assert_max_num_queries: Any, turnkit_model: Model, turnkit_drain: Drain
) -> None:
    turnkit_model([text("The end.")])
    ticket = open_by_form(ada, "The beginning.")
    for number in range(MOST_MESSAGES + 50):
        ticket.conversation.say(f"Number {number}.")
    turnkit_drain()

    with django_assert_max_num_queries(10):
        page = ada.get(address(ticket)).text

    assert len(entries(page)) == MOST_MESSAGES
    assert "Older messages are not shown." in page
    assert "The beginning." not in page
    assert entries(page)[-1] == "The end."


def cancel(client: Client, ticket: Ticket) -> str:
    return client.post(address(ticket, "cancel/"), follow=True).text


def test_cancelling_asks_first(ada: Client) -> None:
    ticket = open_by_form(ada, "Where is it?")

    page = ada.get(address(ticket, "cancel/")).text
    assert f"Cancel the work on ticket {ticket.pk}?" in page
    assert '<form method="post"' in page
    assert Turn.objects.get().status == "pending"

    done = cancel(ada, ticket)
    assert "The work on your message was cancelled." in done
    assert word(done) == "cancelled"
    assert poll_of(done) is None


def test_all_that_waits_is_cancelled(ada: Client, turnkit_model: Model, turnkit_drain: Drain) -> None:
    ticket = open_by_form(ada, "One?")
    write(ada, ticket, "Two?")

    cancel(ada, ticket)

    assert set(Turn.objects.values_list("status", flat=True)) == {"cancelled"}
    assert ada.get(address(ticket)).text.count(">Cancelled</p>") == 1


def test_cancelling_what_has_ended_says_that_it_changed_nothing(
    ada: Client, turnkit_model: Model, turnkit_drain: Drain
) -> None:
    turnkit_model([text("Done."), {"error": {"status": 400}}])
    ticket = open_by_form(ada, "One?")
    turnkit_drain()

    assert "Nothing was cancelled: the help desk had answered already." in cancel(ada, ticket)
    asked = ada.get(address(ticket, "cancel/"), follow=True).text
    assert "Nothing was cancelled: the help desk had answered already." in asked
    assert Turn.objects.get().status == "completed"

    write(ada, ticket, "Two?")
    turnkit_drain()
    assert "Nothing was cancelled: the work had failed already." in cancel(ada, ticket)

    write(ada, ticket, "Three?")
    cancel(ada, ticket)
    assert "Nothing was cancelled: it was cancelled already." in cancel(ada, ticket)
