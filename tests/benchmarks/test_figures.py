"""Medians, percentiles, ratios and goals are what their names say."""

import pytest

from benchmarks.figures import chosen, pairs, percentile, rate, spread
from benchmarks.goals import GOALS, Goal


def backlog(system: str, number: int, per_second: float) -> dict[str, object]:
    return {"kind": "backlog", "system": system, "workers": 2, "round": number, "per_second": per_second}


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([3, 1, 2], 0.5, 2), ([1, 2, 3, 4], 0.5, 2), (range(1, 101), 0.99, 99), ([7], 0.99, 7), ([2, 1], 0, 1)],
)
def test_a_percentile_is_the_smallest_value_that_covers_the_share(values: list[float], share: float, expected: float):
    assert percentile(list(values), share) == expected


def test_a_spread_is_median_least_and_greatest():
    assert spread([5, 1, 2]) == (2, 1, 5)
    assert spread([1, 2]) == (1.5, 1, 2)


@pytest.mark.parametrize("taken", [lambda: percentile([], 0.5), lambda: spread([])])
def test_statistics_of_nothing_are_refused(taken):
    with pytest.raises(ValueError, match="expected at least one value"):
        taken()


def test_results_are_chosen_by_all_their_values():
    found = [backlog("turnkit", 0, 1), backlog("dbos", 0, 2)]
    assert chosen(found, kind="backlog", system="dbos") == [found[1]]
    assert chosen(found, kind="one", system="dbos") == []


def test_a_ratio_is_of_results_of_the_same_round():
    found = [
        backlog("turnkit", 0, 10),
        backlog("turnkit", 1, 30),
        backlog("turnkit", 2, 99),
        backlog("dbos", 1, 10),
        backlog("dbos", 0, 20),
    ]
    assert pairs(found, "dbos", rate, kind="backlog") == [0.5, 3]


def test_a_figure_of_nothing_is_no_divisor():
    found = [backlog("turnkit", 0, 10), backlog("rq", 0, 0)]
    assert pairs(found, "rq", rate, kind="backlog") == []


def test_a_goal_is_reached_at_its_bound_and_on_its_good_side():
    least = Goal("speed", 4, lambda results: None, is_least=True)
    most = Goal("size", 4, lambda results: None)
    assert [least.is_reached(value) for value in (3.9, 4, 5)] == [False, True, True]
    assert [most.is_reached(value) for value in (3.9, 4, 5)] == [True, True, False]


def test_what_a_run_did_not_measure_reaches_no_goal():
    assert [goal.measured([]) for goal in GOALS] == [None] * len(GOALS)
