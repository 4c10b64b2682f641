"""Every named constraint, broken once by a row; and every constraint and index of the models is in the database."""

from collections.abc import Callable
from typing import Any

import pytest
from django.apps import apps
from django.db import IntegrityError, connection, models, transaction
from django.utils import timezone

from turnkit_django.models import Conversation, Delivery, Message, ToolExecution, Turn, Wait

pytestmark = pytest.mark.django_db

MODELS: list[type[models.Model]] = list(apps.get_app_config("turnkit").get_models())


def conversation(**values: Any) -> Conversation:
    return Conversation.objects.create(**{"agent_name": "helper", **values})


def turn(lane: Conversation | None = None, **values: Any) -> Turn:
    needed = {"agent_name": "helper", "model": "x", "max_iterations": 1, "max_output_tokens": 1}
    return Turn.objects.create(conversation=lane or conversation(), **needed | values)


def running(lane: Conversation | None = None, **values: Any) -> Turn:
    now = timezone.now()
    claim = {"claim_token": "t" * 32, "claimed_by": "host:1:1", "claimed_at": now, "lease_expires_at": now}
    return turn(lane, **{"status": "running", **claim, **values})


def message(lane: Conversation | None = None, **values: Any) -> Message:
    return Message.objects.create(conversation=lane or conversation(), **{"sequence": 1, "role": "user", **values})


def execution(of: Turn | None = None, **values: Any) -> ToolExecution:
    needed = {"tool_name": "safe", "tool_call_id": "c", "call_key": "k", "ordinal": 0, "arguments_text": "{}"}
    return ToolExecution.objects.create(turn=of or turn(), **needed | values)


def delivery(**values: Any) -> Delivery:
    needed = {"key": "k", "text": "hi"}
    if "destination" not in values:
        values["destination"] = conversation()
    return Delivery.objects.create(**needed | values)


def twice(make: Callable[..., object], **same: Any) -> None:
    make(**same)
    make(**same)


def two_results_of_one_execution() -> None:
    call = execution()
    lane = call.turn.conversation
    message(lane, sequence=1, tool_execution=call)
    message(lane, sequence=2, tool_execution=call)


def two_children_of_one_execution() -> None:
    call = execution()
    turn(parent_execution=call)
    turn(parent_execution=call)


BROKEN: dict[str, Callable[[], object]] = {
    "turnkit_conversation_numbers_start_at_one": lambda: conversation(next_sequence=0),
    "turnkit_turn_status_is_known": lambda: turn(status="asleep"),
    "turnkit_turn_phase_is_known": lambda: turn(phase="lunch"),
    "turnkit_turn_runs_if_and_only_if_claimed": lambda: running(status="pending"),
    "turnkit_turn_claim_is_whole": lambda: running(claimed_by=None),
    "turnkit_turn_ended_if_and_only_if_it_has_an_end": lambda: turn(status="completed"),
    "turnkit_turn_submitted_has_a_place_in_the_lane": lambda: turn(submitted_at=timezone.now()),
    "turnkit_turn_counts_are_not_negative": lambda: turn(open_waiters=-1),
    "turnkit_turn_attempt_is_whole": lambda: turn(attempt_id="a" * 32),
    "turnkit_turn_key_is_not_empty": lambda: turn(submission_key=""),
    "turnkit_turn_one_runs_per_conversation": lambda: twice(running, lane=conversation()),
    "turnkit_turn_key_is_unique_in_conversation": lambda: twice(turn, lane=conversation(), submission_key="k"),
    "turnkit_turn_one_child_per_execution": two_children_of_one_execution,
    "turnkit_message_role_is_known": lambda: message(role="narrator"),
    "turnkit_message_kind_is_known": lambda: message(kind="smoke"),
    "turnkit_message_sequence_is_positive": lambda: message(sequence=0),
    "turnkit_message_number_is_unique": lambda: twice(message, lane=conversation()),
    "turnkit_message_one_result_per_execution": two_results_of_one_execution,
    "turnkit_execution_status_is_known": lambda: execution(status="asleep"),
    "turnkit_execution_approval_is_known": lambda: execution(approval="perhaps"),
    "turnkit_execution_settled_if_and_only_if_it_has_an_end": lambda: execution(status="completed"),
    "turnkit_execution_running_has_a_start": lambda: execution(status="running"),
    "turnkit_execution_settlement_is_whole": lambda: execution(settled_by={"id": 1}),
    "turnkit_execution_call_is_unique_in_turn": lambda: twice(execution, of=turn()),
    "turnkit_delivery_outcome_is_known": lambda: delivery(outcome="eaten", target_turn=turn()),
    "turnkit_delivery_only_steering_has_an_outcome": lambda: delivery(outcome="applied"),
    "turnkit_delivery_key_is_not_empty": lambda: delivery(key=""),
    "turnkit_delivery_key_is_unique_per_source": lambda: twice(delivery, source=conversation()),
    "turnkit_delivery_steering_key_is_unique_per_turn": lambda: twice(delivery, target_turn=turn()),
    "turnkit_wait_edge_is_unique": lambda: twice(Wait.objects.create, turn=turn(), target=turn()),
    "turnkit_wait_is_not_on_itself": lambda: twice(Wait.objects.create, **dict.fromkeys(("turn", "target"), turn())),
}

MORE: list[tuple[str, Callable[[], object]]] = [
    ("turnkit_conversation_numbers_start_at_one", lambda: conversation(next_lane_position=0)),
    ("turnkit_conversation_numbers_start_at_one", lambda: conversation(unread_count=-1)),
    ("turnkit_turn_counts_are_not_negative", lambda: turn(hops=-1)),
    ("turnkit_turn_runs_if_and_only_if_claimed", lambda: turn(status="running")),
    ("turnkit_turn_runs_if_and_only_if_claimed", lambda: running(status="completed", completed_at=timezone.now())),
    ("turnkit_turn_ended_if_and_only_if_it_has_an_end", lambda: turn(completed_at=timezone.now())),
    ("turnkit_turn_claim_is_whole", lambda: turn(claimed_at=timezone.now())),
    ("turnkit_turn_attempt_is_whole", lambda: turn(attempt_started_at=timezone.now())),
    ("turnkit_execution_settled_if_and_only_if_it_has_an_end", lambda: execution(completed_at=timezone.now())),
    ("turnkit_execution_settlement_is_whole", lambda: execution(settled_at=timezone.now())),
]


def broken_by(make: Callable[[], object]) -> str | None:
    """The name of the constraint that refuses the rows, as PostgreSQL says it."""
    with pytest.raises(IntegrityError) as refused, transaction.atomic():
        make()
    name: str | None = refused.value.__cause__.diag.constraint_name  # type: ignore[union-attr]
    assert f'"{name}"' in str(refused.value)
    return name


ROWS = [*BROKEN.items(), *MORE]


@pytest.mark.parametrize(("name", "make"), ROWS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_row_that_breaks_it_is_refused_in_its_name(name: str, make: Callable[[], object]):
    assert broken_by(make) == name


def test_every_constraint_of_the_models_is_broken_here():
    named = {constraint.name for model in MODELS for constraint in model._meta.constraints}

    assert named == set(BROKEN)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_constraint_and_every_index_is_in_the_database(model: type[models.Model]):
    with connection.cursor() as cursor:
        found = set(connection.introspection.get_constraints(cursor, model._meta.db_table))

    assert {constraint.name for constraint in model._meta.constraints} <= found
    assert {index.name for index in model._meta.indexes} <= found


@pytest.mark.parametrize("column", ["iterations", "attempts", "revision", "pending_dependencies", "unknown_attempts"])
def test_no_count_of_a_turn_goes_below_zero(column: str):
    with pytest.raises(IntegrityError, match=r"turnkit_turn_(counts_are_not_negative|.*_check)"), transaction.atomic():
        turn(**{column: -1})


def test_lanes_and_keys_of_others_do_not_meet():
    one, other = conversation(), conversation()
    running(one)
    running(other)
    turn(one, submission_key="k")
    turn(other, submission_key="k")
    message(one)
    message(other)
    delivery(source=one)
    delivery(source=other)
    delivery(source=one, target_turn=turn())
    delivery(source=one, target_turn=turn())

    assert [model.objects.count() for model in (Message, Delivery)] == [2, 4]
    assert sorted(Turn.objects.values_list("status", flat=True)) == ["pending"] * 4 + ["running"] * 2


def test_a_foreign_key_to_nothing_is_refused():
    with transaction.atomic():
        turn(parent_id="turn_of_nobody")
        with pytest.raises(IntegrityError, match="violates foreign key constraint"):
            connection.check_constraints()
        transaction.set_rollback(True)


def test_a_conversation_is_erased_with_all_that_is_its_own():
    lane, reader = conversation(), conversation()
    mine = running(lane)
    call = execution(mine)
    message(lane, turn=mine, tool_execution=call)
    child = turn(parent=mine, parent_execution=call, root=mine)
    Wait.objects.create(turn=child, target=mine)
    delivery(source=lane, destination=reader, source_turn=mine)
    delivery(destination=lane, target_turn=mine)

    lane.delete()

    child.refresh_from_db()
    assert (child.parent_id, child.parent_execution_id, child.root_id) == (None, None, None)
    assert [model.objects.count() for model in (Conversation, Turn, Message, ToolExecution, Wait)] == [2, 1, 0, 0, 0]
    assert list(Delivery.objects.values_list("source", "source_turn", "destination")) == [(None, None, reader.pk)]
