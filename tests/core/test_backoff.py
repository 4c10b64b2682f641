import pytest

from turnkit_django.core.backoff import recovery_delay, retry_delay


@pytest.mark.parametrize(
    ("attempts", "seconds"), [(0, 0), (1, 0), (2, 1), (3, 2), (4, 4), (7, 32), (8, 60), (9, 60), (10_000, 60)]
)
def test_a_turn_comes_back_at_once_after_the_first_death_and_ever_later_after_more(attempts: int, seconds: float):
    assert recovery_delay(attempts) == seconds


@pytest.mark.parametrize(
    ("wish", "seconds"), [(0, 0), (0.5, 0.5), (20, 20), (899.5, 899.5), (86_400, 900), (-3, 0), (float("inf"), 900)]
)
def test_the_providers_wish_is_obeyed_within_its_bound(wish: float, seconds: float):
    assert retry_delay(1, retry_after=wish, longest=900) == seconds


@pytest.mark.parametrize(("failures", "most"), [(1, 1), (2, 2), (3, 4), (7, 60), (10_000, 60)])
def test_without_a_wish_the_delay_doubles_and_is_spread(failures: int, most: float):
    delays = [retry_delay(failures, retry_after=None, longest=900) for _ in range(200)]

    assert most / 2 <= min(delays)
    assert max(delays) <= most
    assert len(set(delays)) > 100


def test_the_bound_holds_without_a_wish_too():
    assert max(retry_delay(9, retry_after=None, longest=5) for _ in range(50)) == 5
