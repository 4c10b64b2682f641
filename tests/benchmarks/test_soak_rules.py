"""Each rule of the soak holds after ordinary work, and finds what it is named for."""

from collections.abc import Callable

import pytest
from django.db import connection
from django.db.models import QuerySet

from benchmarks.soak import agents, model
from benchmarks.soak.counts import counts
from benchmarks.soak.load import WEIGHTS, Ledger, Load
from benchmarks.soak.models import Mark
from benchmarks.soak.rules import RULES
from turnkit_django.models import Delivery, Message, ToolExecution, Turn
from turnkit_django.testing import ScriptedModel, assert_clean, drain

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The app of the soak is not installed here."""
    monkeypatch.setattr(agents, "BODY_SECONDS", 0)
    monkeypatch.setattr(model, "ANSWER_SECONDS", 0)
    with connection.schema_editor() as editor:
        editor.create_model(Mark)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def work(ledger: Ledger, turnkit_model: Callable[..., ScriptedModel]) -> Callable[..., ScriptedModel]:
    def do(*kinds: str) -> ScriptedModel:
        script = turnkit_model(model.answer)
        load = Load("a test", ledger)
        for kind in kinds:
            load.do(kind)
        drain()
        return script

    return do


def broken(ledger: Ledger) -> dict[str, list[str]]:
    return {rule: found for rule, check in RULES.items() if (found := list(check(ledger)))}


def test_all_rules_hold_after_each_kind_of_act_and_all_is_counted(ledger: Ledger, work: Callable[..., ScriptedModel]):
    script = work(*WEIGHTS)
    assert broken(ledger) == {}
    assert_clean(model=script)

    found = counts(ledger)
    assert found["turns"] == Turn.objects.count() > len(WEIGHTS)
    assert found["of them children"] == sum(model.CHILDREN.values())
    assert found["turns failed, as their tasks say"] == 1
    assert found["calls of safe"] == found["its effects (safe)"] == len(model.SAFE)
    assert found["calls of unsafe"] == found["its effects (unsafe)"] == len(model.UNSAFE)
    assert found["launched and awaited with wait_for"] == 1
    assert found["turns that the application made wait for others"] == 1
    assert found["messages sent"] == found["messages delivered and read"] == 5


def mark_again(tool: str, kind: str, **changes: object) -> None:
    mark = Mark.objects.get(tool=tool, kind=kind)
    for name, value in changes.items():
        setattr(mark, name, value)
    mark.pk = None
    mark.save()


def say_again() -> None:
    message = Message.objects.get(content__0__text="safe 1")
    message.pk, message.sequence = "msg_again", 1000
    message.save(force_insert=True)


def results() -> QuerySet[Message]:
    return Message.objects.filter(content__0__text__icontains="wait_results")


def told_otherwise() -> None:
    call = ToolExecution.objects.filter(tool_name="soak_clerk").first()
    call.result |= {"status": "failed"}
    call.save()


SABOTAGE = [
    ("every turn", "safe", lambda ledger: ledger.tasks.update({99: "plain"}), "task 99 is there 0 times"),
    ("every turn", "plain", lambda ledger: ledger.tasks.clear(), "task 1 is there 1 times, expected 0"),
    ("every turn", "plain", lambda _: Turn.objects.update(output_text="done 2"), "answers 'done 2'"),
    ("every turn", "post", lambda _: Turn.objects.update(status="cancelled"), "is cancelled, expected completed"),
    ("unknown", "unsafe", lambda _: mark_again("unsafe", "begun"), "unsafe begun more than once for key"),
    ("unknown", "unsafe", lambda _: mark_again("unsafe", "effect", key="another"), "effect more than once for n 1"),
    ("unknown", "unsafe", lambda _: Mark.objects.all().delete(), "task 1 has no effect"),
    ("unknown", "unsafe", lambda _: mark_again("unsafe", "effect", key="another", n=7), "task 7 was not asked for"),
    ("replay-safe", "safe", lambda _: mark_again("safe", "effect"), "safe effect more than once for key"),
    ("replay-safe", "safe", lambda _: mark_again("safe", "begun", key="another"), "task 1 has more than one key"),
    ("replay-safe", "safe", lambda _: Mark.objects.filter(kind="effect").delete(), "task 1 has no effect"),
    ("is lost", "post", lambda _: Delivery.objects.update(request_id=""), "was not read"),
    ("is lost", "post", lambda _: Delivery.objects.update(message=None), "was not delivered"),
    ("is lost", "told", lambda _: Delivery.objects.all().delete(), "message completion:turn_"),
    ("is lost", "tell", lambda _: Delivery.objects.all().delete(), "message message:tool_"),
    ("is lost", "callback", lambda _: Delivery.objects.all().delete(), "message completion:turn_"),
    ("twice", "safe", lambda _: say_again(), "'safe 1' stands twice"),
    ("twice", "safe plain join", lambda _: results().delete(), "results for turn_"),
    ("twice", "post", lambda _: Message.objects.filter(metadata__has_key="delivery_id").delete(), "delivery dlv_"),
    ("one child", "launch", lambda ledger: ledger.tasks.update({2: "risk"}), "1 children, expected 2"),
    ("one child", "launch", lambda _: ToolExecution.objects.update(result={"turn_id": "another"}), "its child turn_"),
    ("one child", "delegate", lambda _: told_otherwise(), "its child turn_"),
    ("one child", "delegate", lambda _: ToolExecution.objects.update(result={"turn_id": "another"}), "its child turn_"),
]


@pytest.mark.parametrize(("rule", "kind", "harm", "found"), SABOTAGE, ids=[f"{row[1]}: {row[3]}" for row in SABOTAGE])
def test_a_rule_finds_what_breaks_it(
    rule: str,
    kind: str,
    harm: Callable[[Ledger], object],
    found: str,
    ledger: Ledger,
    work: Callable[..., ScriptedModel],
):
    work(*kind.split())
    assert broken(ledger) == {}
    harm(ledger)
    problems = [problem for name, told in broken(ledger).items() if rule in name for problem in told]
    assert any(found in problem for problem in problems), broken(ledger)


def test_a_call_that_failed_as_it_lost_the_database_may_have_no_effect(
    ledger: Ledger, work: Callable[..., ScriptedModel]
):
    work("safe")
    Mark.objects.all().delete()
    failed = {"status": "failed", "result": None, "error": {"type": "OperationalError", "message": "", "details": {}}}
    ToolExecution.objects.update(**failed)
    assert broken(ledger) == {}
    assert counts(ledger)["calls of either that failed as they lost the database"] == 1
