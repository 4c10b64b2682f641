"""Values → parameters of the hot statements in `store/sql.py`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from turnkit_django.core import ids
from turnkit_django.core.content import Json, Part, result_part
from turnkit_django.core.states import ToolState
from turnkit_django.models.message import Kind, Role
from turnkit_django.store.records import NewCall, Next, Reply, Settlement

Fields = dict[str, Any]


def of_reply(reply: Reply, calls: Sequence[NewCall], then: Next, lease_seconds: int) -> Fields:
    return {
        **_message(Role.ASSISTANT, Kind.TOOL_CALL if calls else Kind.TEXT, reply.parts, reply.message_metadata()),
        **_then(then, lease_seconds),
        "provider": reply.provider,
        "execution_id": None,
        "is_broken": reply.is_broken,
        "calls": dump([{name: value for name, value in asdict(call).items() if value is not None} for call in calls]),
        "cost": reply.cost,
        **reply.usage.counts(),
    }


def of_settlement(settlement: Settlement, call_id: str, call_key: str, then: Next, lease_seconds: int) -> Fields:
    is_error = settlement.status != ToolState.COMPLETED
    part = result_part(call_id=call_id, key=call_key, text=settlement.text, error=is_error)
    return {
        **_message(Role.TOOL, Kind.TOOL_RESULT, [part], {}),
        **_then(then, lease_seconds),
        "provider": "",
        "execution_id": settlement.execution_id,
        "status": settlement.status,
        "ran_seconds": settlement.ran_seconds,
        "arguments": None if settlement.arguments is None else dump(settlement.arguments),
        "result": None if settlement.result is None else dump(settlement.result),
        "error": None if settlement.error is None else dump(settlement.error),
        "next_id": then.execution_id,
    }


def dump(value: Json) -> str:
    return json.dumps(value)


def _message(role: Role, kind: Kind, parts: Sequence[Part], metadata: Mapping[str, Json]) -> Fields:
    return {
        "message_id": ids.new_message_id(),
        "has_message": bool(parts),
        "role": role.value,
        "kind": kind.value,
        "content": dump(list(parts)),
        "metadata": dump(dict(metadata)),
    }


def _then(then: Next, lease_seconds: int) -> Fields:
    reservation = then.reservation
    return {
        "phase": then.phase.value,
        "request_id": reservation.request_id if reservation else None,
        "attempt_id": reservation.attempt_id if reservation else None,
        "lease_seconds": lease_seconds,
    }
