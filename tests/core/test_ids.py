import re
import threading

import pytest

from tests.waiting import wait_until
from turnkit_django.core import ids

MAKERS = {
    "conv": ids.new_conversation_id,
    "turn": ids.new_turn_id,
    "msg": ids.new_message_id,
    "tool": ids.new_tool_execution_id,
    "dlv": ids.new_delivery_id,
    "wait": ids.new_wait_id,
}
ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def value(identifier: str) -> int:
    number = 0
    for letter in identifier.partition("_")[2]:
        number = number * 32 + ALPHABET.index(letter)
    return number


@pytest.mark.parametrize("prefix", MAKERS)
def test_an_id_is_its_prefix_and_a_uuid7_in_26_characters(prefix: str):
    identifier = MAKERS[prefix]()

    assert re.fullmatch(rf"{prefix}_[{ALPHABET}]{{26}}", identifier)
    assert len(identifier) <= ids.MAX_LENGTH
    assert (value(identifier) >> 76 & 0xF, value(identifier) >> 62 & 0b11) == (7, 2)


def test_ids_sort_by_the_millisecond_in_which_they_were_made():
    first = ids.new_turn_id()
    later = wait_until(lambda: made if (made := ids.new_turn_id())[:15] != first[:15] else "", "time stands still")

    assert first < later


def test_ids_of_many_threads_are_all_different():
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.extend(ids.new_turn_id() for _ in range(500))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(found)) == 4000


def test_a_claim_token_is_32_hex_digits_and_never_the_same():
    tokens = {ids.new_token() for _ in range(1000)}

    assert len(tokens) == 1000
    assert all(re.fullmatch(r"[0-9a-f]{32}", token) for token in tokens)
