"""Prefixed, time-ordered ids: a person who reads a log sees what an id names."""

from __future__ import annotations

import os
import secrets
import time
from datetime import datetime

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford base 32: no I, L, O, U
_LENGTH = 26  # 130 bits for the 128 of a UUID

MAX_LENGTH = 40


def _uuid7() -> int:
    """A UUIDv7 as an integer (RFC 9562, section 5.7): milliseconds, then random bits."""
    milliseconds = time.time_ns() // 1_000_000
    random_bits = int.from_bytes(os.urandom(10), "big")
    high = (milliseconds & ((1 << 48) - 1)) << 80
    return high | 0x7 << 76 | ((random_bits >> 68) & 0xFFF) << 64 | 0x2 << 62 | random_bits & ((1 << 62) - 1)


def _encode(value: int) -> str:
    return "".join(_ALPHABET[(value >> shift) & 31] for shift in range((_LENGTH - 1) * 5, -1, -5))


def new_id(prefix: str) -> str:
    """A fresh id such as `turn_06A…`; `prefix` comes without the underscore."""
    return f"{prefix}_{_encode(_uuid7())}"


def earliest_id(prefix: str, moment: datetime) -> str:
    """No id that was made at `moment` or later by this clock is smaller."""
    return f"{prefix}_{_encode(int(moment.timestamp() * 1000) << 80)}"


def id_range(start: str) -> tuple[str, str]:
    """The smallest and the greatest id that can begin with `start`, which holds the prefix and its underscore."""
    length = start.index("_") + 1 + _LENGTH
    return start.ljust(length, _ALPHABET[0]), start.ljust(length, _ALPHABET[-1])


def new_conversation_id() -> str:
    return new_id("conv")


def new_turn_id() -> str:
    return new_id("turn")


def new_message_id() -> str:
    return new_id("msg")


def new_tool_execution_id() -> str:
    return new_id("tool")


def new_delivery_id() -> str:
    return new_id("dlv")


def new_wait_id() -> str:
    return new_id("wait")


def new_token() -> str:
    """A claim token: 32 hex digits, never used twice."""
    return secrets.token_hex(16)
