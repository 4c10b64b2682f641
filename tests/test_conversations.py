"""The verbs that open, feed and run conversations, and what they refuse."""

import re
import uuid
from decimal import Decimal
from typing import Any

import pytest
from django.db import transaction
from django.test import TestCase

from tests.testapp.agents import helper
from tests.testapp.models import Effect
from turnkit_django import Agent, register
from turnkit_django.engine import model_call
from turnkit_django.errors import ConfigError, InputError, LaneBusy, StateError
from turnkit_django.models import Conversation, Message, ToolExecution, Turn
from turnkit_django.testing import Crash, assert_clean, call, crash_at, drain, text
from turnkit_django.testing.clients import ScriptedModel

pytestmark = pytest.mark.django_db


def rows() -> list[int]:
    return [kind.objects.count() for kind in (Conversation, Turn, Message, ToolExecution)]


NOT_TEXT = ["", "   ", "\n\t", None, 5, b"hi", ["hi"]]
NAN = float("nan")
LOOP: dict[str, Any] = {}
LOOP["self"] = LOOP


# Saying


@pytest.mark.parametrize("words", NOT_TEXT, ids=repr)
@pytest.mark.parametrize("verb", ["say", "ask", "submit"])
def test_a_message_must_be_a_text_that_is_not_blank(verb: str, words: Any):
    conversation = helper.conversation()
    with pytest.raises(InputError, match="expected the message to be a text that is not blank, got"):
        getattr(conversation, verb)(words)
    assert rows() == [1, 0, 0, 0]


@pytest.mark.parametrize("words", NOT_TEXT, ids=repr)
@pytest.mark.parametrize("verb", ["prepare", "run", "submit"])
def test_a_task_must_be_a_text_that_is_not_blank(verb: str, words: Any):
    with pytest.raises(InputError, match="not blank"):
        getattr(helper, verb)(words)
    assert rows() == [0, 0, 0, 0]


def test_say_stores_a_message_and_runs_nothing(turnkit_model):
    model = turnkit_model([text("hi")])
    conversation = helper.conversation()
    message = conversation.say("  spaces stay ", metadata={"from": "mail"})
    stored = conversation.messages.get()
    assert (stored.pk, stored.text, stored.sequence, stored.metadata, stored.turn) == (
        message.pk,
        "  spaces stay ",
        1,
        {"from": "mail"},
        None,
    )
    assert (len(model.requests), drain(max_seconds=0)) == (0, 0)
    assert conversation.run().output_text == "hi"
    assert_clean(model=model)


@pytest.mark.parametrize("value", [object(), {1: "x"}, {"n": NAN}, {"a": {1, 2}}, LOOP], ids=str)
@pytest.mark.parametrize("name", ["metadata", "context", "principal"])
def test_what_is_stored_as_json_must_be_json(name: str, value: Any):
    with pytest.raises(InputError, match=f"expected `{name}` to be JSON"):
        helper.conversation(**{name: value})
    assert rows() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"order": [{"price": Decimal(1)}]}, "at `context['order'][0]['price']`: a Decimal is not JSON: Decimal('1')"),
        ({"order": ({"n": NAN},)}, "at `context['order'][0]['n']`: nan is not a JSON number"),
        ({"order": {"a": 1, 5: Decimal(1)}}, "at `context['order']`: JSON keys are text, got 5 (int)"),
        ({5: "x"}, "JSON keys are text, got 5 (int)"),
    ],
)
def test_what_is_no_json_is_told_with_its_place_and_type(value: Any, problem: str):
    with pytest.raises(InputError) as caught:
        helper.conversation(context=value)
    assert str(caught.value) == f"expected `context` to be JSON: {problem}"


def test_what_holds_itself_is_told_in_words():
    with pytest.raises(InputError, match="expected `context` to be JSON, got what holds itself or is nested too deep"):
        helper.conversation(context={"loop": LOOP})


@pytest.mark.parametrize("subject", [Effect(name="not saved"), Conversation(), "text", Effect], ids=str)
def test_a_subject_must_be_saved(subject: Any):
    with pytest.raises(InputError, match="expected `subject` to be a saved model instance"):
        helper.conversation(subject=subject)


def test_a_subject_is_kept_as_type_and_key():
    effect = Effect.objects.create(name="x")
    conversation = helper.conversation(subject=effect)
    assert (conversation.subject_type, conversation.subject_id) == ("testapp.effect", str(effect.pk))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tempo": 1}, "unknown turn options ['tempo']; known: key, context, model, on_event, principal, thinking"),
        ({"thinking": "high"}, "thinking"),
        ({"thinking": {"effort": "extreme"}}, "thinking"),
        ({"context": {"f": object()}}, "expected `context` to be JSON"),
        ({"principal": object()}, "expected `principal` to be JSON"),
    ],
)
@pytest.mark.parametrize("verb", ["ask", "submit", "prepare"])
def test_a_turn_option_that_cannot_be_used_is_refused(verb: str, options: dict[str, Any], message: str):
    with pytest.raises(InputError) as caught:
        getattr(helper.conversation(), verb)("please", **options)
    assert message in str(caught.value)
    assert rows() == [1, 0, 0, 0]


def test_unstorable_characters_are_replaced_wherever_the_application_writes(turnkit_model):
    model = turnkit_model([text("ok")])
    bad, good = "a\x00\ud800b", "a\ufffd\ufffdb"
    conversation = helper.conversation(metadata={bad: bad}, context={bad: [bad]}, principal=bad)
    conversation.say(bad, metadata={bad: bad})
    turn = conversation.ask(bad, key=bad, context={bad: bad}, principal={bad: bad})
    conversation.refresh_from_db()
    assert (conversation.metadata, conversation.context, conversation.principal) == ({good: good}, {good: [good]}, good)
    assert (turn.context, turn.principal, turn.submission_key) == ({good: good}, {good: good}, good)
    assert [message.text for message in conversation.messages.all()] == [good, good, "ok"]
    assert conversation.ask(bad, key=bad).pk == turn.pk
    assert_clean(model=model)


def test_context_is_copied_when_it_is_handed_in(turnkit_model):
    context = {"list": [1]}
    turn = helper.conversation(context=context).prepare("please")
    context["list"].append(2)
    assert Turn.objects.get(pk=turn.pk).context == {"list": [1]}


@pytest.mark.parametrize("value", [["a"], "text", 5, True, [], 0, ""], ids=repr)
@pytest.mark.parametrize("name", ["metadata", "context"])
def test_facts_and_context_must_be_json_objects(name: str, value: Any):
    said = re.escape(f"expected `{name}` to be JSON: an object (a dict), got {value!r} ({type(value).__name__})")
    calls = [helper.conversation, lambda **options: helper.submit("please", **options)]
    for refuse in calls:
        with pytest.raises(InputError, match=said):
            refuse(**{name: value})
    assert rows() == [0, 0, 0, 0]
    conversation = helper.conversation()
    verb = conversation.say if name == "metadata" else conversation.submit
    with pytest.raises(InputError, match=said):
        verb("please", **{name: value})
    assert rows() == [1, 0, 0, 0]


@pytest.mark.parametrize("model", [1, "", "  ", ["m"], b"m", False], ids=repr)
def test_a_model_must_be_named_by_a_text(model: Any):
    said = re.escape(
        f"expected `model` to be a litellm model string, such as `openai/gpt-5-mini`, or None, got {model!r}"
    )
    for refuse in (
        lambda: helper.conversation(model=model),
        lambda: helper.submit("please", model=model),
        lambda: helper.prepare("please", model=model),
        lambda: helper.run("please", model=model),
    ):
        with pytest.raises(InputError, match=said):
            refuse()
    assert rows() == [0, 0, 0, 0]
    with pytest.raises(InputError, match=said):
        helper.conversation().submit("please", model=model)
    assert rows() == [1, 0, 0, 0]


def test_a_name_of_a_model_that_cannot_be_stored_is_cleaned():
    assert helper.conversation(model="m\x00").model == "m\ufffd"


def test_a_number_that_python_does_not_print_is_no_json():
    for refuse in (helper.conversation, lambda **options: helper.submit("please", **options)):
        with pytest.raises(InputError, match=r"JSON: at `context\['a'\]`: an int of 16610 bits has too many digits"):
            refuse(context={"a": 10**5000})
    with pytest.raises(InputError, match="not blank, got an int of 16610 bits"):
        helper.submit(10**5000)
    assert rows() == [0, 0, 0, 0]


def test_an_agent_takes_the_options_of_a_turn(turnkit_model):
    model = turnkit_model([text("one"), text("two")])
    thinker = register(Agent(name="thinker", model="openai/gpt-5-mini", thinking={"effort": "low"}))
    run = thinker.run("please", model="openai/gpt-5", thinking={"effort": "high"})
    assert (run.turn.model, run.turn.options) == ("openai/gpt-5", {"thinking": {"effort": "high"}})
    assert thinker.submit("please", thinking=None).turn.options == {"thinking": None}
    assert thinker.prepare("please").turn.options == {"thinking": {"effort": "low"}}
    drain()
    assert [(request.model, request.thinking) for request in model.requests] == [
        ("openai/gpt-5", {"effort": "high"}),
        ("openai/gpt-5-mini", None),
    ]


@pytest.mark.parametrize("options", [{"thinking": "high"}, {"thinking": {"effort": "extreme"}}])
@pytest.mark.parametrize("verb", ["prepare", "run", "submit"])
def test_an_option_that_an_agent_cannot_use_leaves_nothing_behind(verb: str, options: dict[str, Any]):
    with pytest.raises(InputError, match="agent `helper`: expected `thinking`"):
        getattr(helper, verb)("please", **options)
    assert rows() == [0, 0, 0, 0]


@pytest.mark.parametrize("verb", ["prepare", "run", "submit"])
def test_an_agent_that_is_not_registered_runs_nothing(verb: str):
    with pytest.raises(ConfigError, match="expected the name of a registered agent, got 'stranger'"):
        getattr(Agent(name="stranger"), verb)("please")
    assert rows() == [0, 0, 0, 0]


# Keys


@pytest.mark.parametrize("verb", ["ask", "submit", "prepare"])
def test_the_same_key_and_text_return_the_first_turn(turnkit_model, verb: str):
    model = turnkit_model([text("once")])
    conversation = helper.conversation()
    first = getattr(conversation, verb)("please", key="click")
    assert getattr(conversation, verb)("please", key="click").pk == first.pk
    drain()
    assert getattr(conversation, verb)("please", key="click").pk == first.pk
    assert (conversation.turns.count(), conversation.messages.filter(role="user").count()) == (1, 1)
    assert_clean(model=model)


def test_a_key_with_another_text_is_refused_and_named():
    conversation = helper.conversation()
    turn = conversation.submit("please", key="click")
    with pytest.raises(StateError, match=rf"key 'click' belongs to {turn.pk} of {conversation.pk}.*use a new key"):
        conversation.submit("other", key="click")
    assert rows() == [1, 1, 1, 0]


def test_keys_are_unique_per_conversation_only():
    assert helper.conversation().submit("a", key="k").pk != helper.conversation().submit("b", key="k").pk


@pytest.mark.parametrize("key", ["", "  ", 5, "\n", "".join(map(str, range(2000)))], ids=lambda key: repr(key)[:9])
def test_a_key_that_cannot_be_used_is_refused(key: Any):
    conversation = helper.conversation()
    with pytest.raises(InputError, match=f"{conversation.pk}: expected `key` to be a text"):
        conversation.submit("please", key=key)
    assert rows() == [1, 0, 0, 0]


def test_a_key_that_is_too_long_is_told_by_its_length():
    with pytest.raises(InputError, match=r"1 to 255 characters that is not blank, got a text of 500 characters$"):
        helper.conversation().submit("please", key="k" * 500)


def test_a_long_random_key_fits_into_the_index():
    key = "".join(uuid.uuid4().hex for _ in range(6))
    assert helper.conversation().submit("please", key=key).submission_key == key


# Submitting


def test_submitting_a_turn_twice_returns_it_and_keeps_its_place(turnkit_model):
    model = turnkit_model([text("once")])
    turn = helper.conversation().prepare("please")
    first = turn.submit()
    again = turn.submit()
    assert (again.pk, again.submitted_at, again.lane_position) == (first.pk, first.submitted_at, first.lane_position)
    drain()
    assert turn.submit().status == "completed"
    assert len(model.requests) == 1
    assert_clean(model=model)


def test_a_turn_that_ran_here_cannot_be_submitted(turnkit_model):
    turnkit_model([text("hi")])
    turn = helper.conversation().ask("please")
    with pytest.raises(StateError, match=f"{turn.pk} is completed and was never submitted"):
        turn.submit()


def test_a_submitted_turn_cannot_run_here():
    turn = helper.conversation().submit("please")
    with pytest.raises(StateError, match=f"{turn.pk} is submitted: a worker runs it"):
        turn.run()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("commits", [True, False])
def test_a_submission_inside_a_transaction_shares_its_end(turnkit_model, commits: bool):
    model = turnkit_model([text("hi")])
    conversation = helper.conversation()
    with transaction.atomic():
        conversation.submit("please")
        conversation.say("and this")
        transaction.set_rollback(not commits)
    assert drain() == commits
    assert rows() == ([1, 1, 3, 0] if commits else [1, 0, 0, 0])
    assert_clean(model=model)


# Running here


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("verb", ["ask", "agent", "prepared", "run"])
def test_running_inside_a_transaction_is_refused_naming_the_ways_out(turnkit_model, verb: str):
    model = turnkit_model([])
    conversation = helper.conversation()
    prepared = conversation.prepare("please")
    before = rows()
    runs = {
        "ask": lambda: conversation.ask("please"),
        "agent": lambda: helper.run("please"),
        "prepared": prepared.run,
        "run": conversation.run,
    }
    with transaction.atomic(), pytest.raises(StateError) as caught:
        runs[verb]()
    assert "transaction.non_atomic_requests" in str(caught.value)
    assert "`submit`" in str(caught.value)
    assert (rows(), len(model.requests)) == (before, 0)
    assert_clean(model=model)


def submitted(conversation: Conversation) -> Turn:
    return conversation.submit("first")


def running(conversation: Conversation) -> Turn:
    turn = conversation.submit("first")
    with crash_at("claimed"), pytest.raises(Crash):
        drain(max_seconds=0)
    return turn


def parked(conversation: Conversation) -> Turn:
    turn = conversation.submit("first")
    with model_call.use(ScriptedModel([{"error": {"status": 429, "retry_after": 800}}])):
        drain(max_seconds=0)
    return turn


def recovered(conversation: Conversation) -> Turn:
    turn = conversation.submit("first")
    with model_call.use(ScriptedModel([RuntimeError("bug")])):
        drain(max_seconds=0)
    return turn


@pytest.mark.parametrize(
    ("occupy", "status"),
    [(submitted, "pending"), (running, "running"), (parked, "waiting"), (recovered, "pending")],
)
@pytest.mark.parametrize("options", [{}, {"key": "click"}], ids=["", "with a key"])
def test_a_busy_conversation_refuses_to_ask_and_stores_nothing(turnkit_model, occupy, status: str, options):
    model = turnkit_model([text("one"), text("two")])
    conversation = helper.conversation()
    turn = occupy(conversation)
    before = rows()
    with pytest.raises(LaneBusy) as caught:
        conversation.ask("second", **options)
    assert f"{conversation.pk} is busy with {turn.pk} ({status}); use `submit`" in str(caught.value)
    assert (rows(), len(model.requests)) == (before, 0)
    Turn.objects.update(not_before=None)
    drain()
    assert conversation.ask("second", **options).output_text == "two"
    assert_clean()


def test_a_preview_keeps_nobody_from_asking(turnkit_model):
    model = turnkit_model([text("hi"), text("ho")])
    conversation = helper.conversation()
    preview = conversation.prepare("later")
    assert conversation.ask("now").output_text == "hi"
    assert preview.run().output_text == "ho"
    assert_clean(model=model)


class InATestCase(TestCase):
    """Django's own TestCase wraps a test into a transaction that nobody else sees."""

    def test_turns_run_here_and_are_drained(self) -> None:
        model = ScriptedModel([text("run"), call("unsafe", {"n": 1}), text("asked"), text("drained")])
        with model_call.use(model):
            assert helper.run("please").output_text == "run"
            conversation = helper.conversation()
            assert conversation.ask("please").output_text == "asked"
            turn = conversation.submit("please")
            assert drain() == 1
        turn.refresh_from_db()
        assert (turn.output_text, Effect.objects.count()) == ("drained", 1)
        assert_clean(model=model)


# Previews


def test_a_preview_is_the_request_that_would_be_sent_and_writes_nothing(turnkit_model):
    model = turnkit_model([text("hi")])
    run = helper.prepare("please")
    state = list(Turn.objects.values()), list(Message.objects.values()), list(Conversation.objects.values())
    preview = run.preview()
    assert state == (list(Turn.objects.values()), list(Message.objects.values()), list(Conversation.objects.values()))
    assert (preview.model, preview.tool_names) == ("openai/gpt-5-mini", ["safe", "unsafe"])
    run.run()
    assert (run.status, model.requests[0].messages) == ("completed", preview.messages)
    assert_clean(model=model)


def test_the_request_of_a_submitted_turn_is_previewed_as_if_it_were_claimed_now(turnkit_model):
    turnkit_model([text("hi")])
    conversation = helper.conversation()
    first, second = conversation.submit("1"), conversation.submit("2")
    assert [message["content"] for message in second.preview().messages] == ["2"]
    drain()
    assert [message["content"] for message in second.preview().messages][:2] == ["1", "hi"]
    assert first.preview().messages[0]["content"] == "1"


# Runs


def test_a_run_is_a_view_of_its_tree(turnkit_model):
    model = turnkit_model([call("unsafe"), text("hi")], cost=Decimal("0.25"))
    run = helper.submit("please", metadata={"a": 1}, principal="me")
    assert (run.status, run.output_text, run.error, run.cost) == ("pending", "", None, 0)
    drain()
    assert run.refresh().output_text == "hi"
    assert (run.id, run.usage.total_tokens, run.cost) == (run.turn.pk, 240, Decimal("0.5"))
    views = run.turns, run.failed_turns, run.tool_executions, run.messages
    assert [view.count() for view in views] == [1, 0, 1, 4]
    conversation = run.turn.conversation
    assert (conversation.metadata, run.turn.principal, conversation.usage) == ({"a": 1}, "me", run.usage)
    assert_clean(model=model)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"order": 17, "name": "Zoë"}, '{\n  "order": 17,\n  "name": "Zoë"\n}'),
        ("as it is", "as it is"),
        ([], "[]"),
        (0, "0"),
    ],
)
@pytest.mark.parametrize("verb", ["prepare", "run", "submit"])
def test_a_task_and_its_input_are_the_first_message(turnkit_model, verb: str, given: Any, shown: str):
    turnkit_model([text("hi")])
    run = getattr(helper, verb)("Look it up.", input=given)
    assert run.turn.trigger.text == f"Task:\nLook it up.\n\nInput:\n{shown}"


def test_an_input_that_is_no_json_is_refused_and_leaves_nothing():
    with pytest.raises(InputError, match="expected `input` to be JSON"):
        helper.submit("Look it up.", input=object())
    assert rows() == [0, 0, 0, 0]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("verb", ["run", "submit"])
def test_a_run_of_a_parent_belongs_to_the_tree_of_its_root(turnkit_model, verb: str):
    model = turnkit_model([text("one"), text("two"), text("three")], cost=Decimal("0.25"))
    run = helper.run("one")
    second = getattr(helper, verb)("two", parent=run)
    third = getattr(helper, verb)("three", parent=second.turn)
    drain()
    assert (second.turn.root, third.turn.root) == (run.turn, run.turn)
    assert (second.turn.parent, second.turn.depth) == (None, 0)
    assert list(run.turns) == [run.turn, second.turn, third.turn]
    assert (list(run.descendants), list(run.children)) == ([second.turn, third.turn], [])
    assert (run.usage, run.cost) == (model.usage, Decimal("0.75"))
    assert_clean(model=model)


def test_a_parent_is_a_run_or_a_turn_that_is_stored():
    run = helper.prepare("one")
    with pytest.raises(InputError, match="expected `parent` to be a Run or a stored Turn, got 'turn_1'"):
        helper.submit("two", parent="turn_1")
    Turn.objects.all().delete()
    with pytest.raises(Turn.DoesNotExist, match=f"{run.id} is not in the database"):
        helper.submit("two", parent=run)
    assert Turn.objects.count() == 0


@pytest.mark.parametrize(("costs", "total"), [((Decimal(1), Decimal(2)), Decimal(3)), ((Decimal(1), None), None)])
def test_an_unknown_cost_makes_the_sum_unknown_and_a_failed_turn_counts(turnkit_model, costs, total):
    conversation = helper.conversation()
    for cost in costs:
        turnkit_model([text("hi")], cost=cost)
        conversation.ask("please")
    assert (conversation.cost, conversation.usage.total_tokens) == (total, 240)


@pytest.mark.django_db(transaction=True)
def test_a_key_that_was_asked_with_gives_that_turn_when_it_is_submitted_again(turnkit_model):
    turnkit_model([text("hi")])
    conversation = helper.conversation()
    asked = conversation.ask("Hello", key="k")
    assert conversation.submit("Hello", key="k") == asked


@pytest.mark.django_db
@pytest.mark.parametrize("verb", ["say", "prepare", "submit", "ask"])
def test_a_conversation_that_is_not_saved_says_how_to_open_one(verb):
    with pytest.raises(InputError, match=r"not saved; open one with `agent.conversation\(\)`"):
        getattr(Conversation(agent_name="helper"), verb)("Hi")


@pytest.mark.django_db(transaction=True)
def test_a_verb_of_a_turn_refreshes_the_object_it_is_called_on(turnkit_model):
    turnkit_model([text("hi")])
    prepared, cancelled, submitted = (helper.conversation().prepare("Hello") for _ in range(3))
    assert (prepared.run() is prepared, prepared.status) == (True, "completed")
    assert (cancelled.cancel() is cancelled, cancelled.status) == (True, "cancelled")
    assert (submitted.submit() is submitted, submitted.is_background) == (True, True)


@pytest.mark.django_db(transaction=True)
def test_an_agents_submission_that_dies_leaves_no_conversation():
    with crash_at("start.written"), pytest.raises(Crash):
        helper.submit("Hello")
    assert Conversation.objects.count() == 0
