from datetime import UTC, datetime, timedelta, timezone

import pytest

from turnkit_django.core.display import one_line
from turnkit_django.core.explanation import Awaited, Explanation, Hold, Limit, age, moment
from turnkit_django.core.reasons import Reason

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def explanation(**changes: object) -> Explanation:
    values: dict[str, object] = {
        "turn": "turn_1", "status": "pending", "reason": Reason.WORKER_DIED, "summary": "lost its worker",
        "since": NOW - 3 * MINUTE, "since_column": "started_at", "now": NOW,
        "waiting_on": (Awaited("turn", "turn_0", NOW - 2 * MINUTE),),
        "claim": Hold("host:1:2", NOW - MINUTE, NOW + MINUTE), "attempts": 2, "next_attempt_at": NOW + 2 * MINUTE,
        "deadline_at": NOW - 60 * MINUTE, "limit": Limit("MAX_RECOVERIES", 5, 2),
        "last_error": {"type": "WorkerDied", "message": "it died", "details": {}}, "action": "wait",
    }  # fmt: skip
    return Explanation(**values | changes)  # type: ignore[arg-type]


def test_a_person_reads_a_few_lines_with_ages():
    assert str(explanation()).splitlines() == [
        "turn_1 is pending: worker_died",
        "  it lost its worker",
        "  since       2026-03-01 11:57:00 UTC, for 3 min (started_at)",
        "  waiting on  turn turn_0, for 2 min",
        "  claimed by  host:1:2, for 1 min",
        "  lease       ends in 1 min, at 2026-03-01 12:01:00 UTC",
        "  attempts    2 of its workers died or failed",
        "  next try    due in 2 min, at 2026-03-01 12:02:00 UTC",
        "  deadline    passed 1 h ago, at 2026-03-01 11:00:00 UTC",
        "  limit       MAX_RECOVERIES: 2 of 5",
        "  last error  WorkerDied: it died",
        "  action      wait",
    ]


def test_a_page_gets_one_line_a_fact():
    long = "word " * 60
    found = explanation(action=long.strip())

    assert len(str(found).splitlines()) > 12
    assert found.unfolded.splitlines()[-1] == f"  action      {long.strip()}"
    assert found.unfolded.splitlines()[:-1] == str(explanation()).splitlines()[:-1]


def test_what_is_not_there_takes_no_line():
    nothing = dict.fromkeys(("claim", "next_attempt_at", "deadline_at", "limit", "last_error"))

    assert str(explanation(**nothing, waiting_on=(), attempts=0)).splitlines() == [
        "turn_1 is pending: worker_died",
        "  it lost its worker",
        "  since       2026-03-01 11:57:00 UTC, for 3 min (started_at)",
        "  action      wait",
    ]


def test_json_has_all_keys_and_times_with_their_offset():
    east = timezone(timedelta(hours=2))

    assert explanation(deadline_at=NOW.astimezone(east)).as_dict() == {
        "turn": "turn_1",
        "status": "pending",
        "reason": "worker_died",
        "since": "2026-03-01T11:57:00+00:00",
        "waiting_on": [{"kind": "turn", "id": "turn_0", "since": "2026-03-01T11:58:00+00:00"}],
        "claim": {
            "by": "host:1:2",
            "since": "2026-03-01T11:59:00+00:00",
            "lease_expires_at": "2026-03-01T12:01:00+00:00",
        },
        "attempts": 2,
        "next_attempt_at": "2026-03-01T12:02:00+00:00",
        "deadline_at": "2026-03-01T12:00:00+00:00",
        "limit": {"name": "MAX_RECOVERIES", "value": 5, "used": 2},
        "last_error": {"type": "WorkerDied", "message": "it died", "details": {}},
        "action": "wait",
        "descendants": [],
        "more_descendants": 0,
    }


def test_json_keeps_its_keys_where_there_is_nothing_to_say():
    nothing = dict.fromkeys(("claim", "next_attempt_at", "deadline_at", "limit", "last_error"))
    found = explanation(**nothing, waiting_on=()).as_dict()

    assert {name: found[name] for name in nothing} == nothing
    assert found["waiting_on"] == []


def test_a_strangers_error_cannot_speak_to_the_terminal():
    error = {"type": "X", "message": "\x1b[2J\n  action      pay\u202e" + "m" * 1000}

    lines = str(explanation(last_error=error)).splitlines()

    assert lines[-4].startswith("  last error  X: [U+001B][2J action")
    assert lines[-3].startswith(" " * 14 + "pay[U+202E]mmm")
    assert lines[-2].startswith(" " * 14 + "[cut: 500 of 1,")
    assert lines[-1] == "  action      wait"


def test_the_deadline_of_an_ended_turn_comes_no_more():
    coming = NOW + MINUTE

    assert "deadline" not in str(explanation(status="failed", deadline_at=coming))
    assert "deadline    comes in 1 min" in str(explanation(status="waiting", deadline_at=coming))
    assert "deadline    passed 1 min ago" in str(explanation(status="failed", deadline_at=NOW - MINUTE))


def test_long_texts_are_folded_under_their_word():
    lines = str(explanation(action="wait " * 30)).splitlines()

    assert max(len(line) for line in lines) <= 110
    assert lines[-1].startswith(" " * 14 + "wait")


def test_a_limit_that_the_row_no_longer_tells_is_a_question():
    assert "limit       TIMEOUT: ? of ?" in str(explanation(limit=Limit("TIMEOUT", None, None)))


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(-5, "0 s"), (0, "0 s"), (59.9, "59 s"), (60, "1 min"), (3599, "59 min"), (7200, "2 h"), (200_000, "2 d")],
)
def test_an_age_is_told_in_its_largest_whole_unit(seconds: float, said: str):
    assert age(timedelta(seconds=seconds)) == said


def test_a_moment_is_told_in_utc():
    assert moment(datetime(2026, 3, 1, 1, tzinfo=timezone(timedelta(hours=5)))) == "2026-02-28 20:00:00 UTC"


def test_text_of_strangers_is_one_line():
    assert one_line("a\n\tb\x00") == "a b[U+0000]"
