"""The hot transitions of a turn, one statement each; and what the ORM cannot say about waits.

Each transition takes its locks in rank order inside the statement: `lane` first (materialized, so that nothing runs
before it), then `fence` (the turn, re-checked on its newest version after any wait), then the rest for those who hold
the fence. They read only columns of rows they have locked, never a subquery: after a wait a subquery would still see
the old rows. No row in the answer means that the claim is not in force; the second column is 1 if the execution was in
a state for it; the third says whether the turn is told to pause.
"""

from __future__ import annotations

_LANE = """
    lane AS MATERIALIZED (
        SELECT id FROM turnkit_conversation WHERE id = %(conversation_id)s FOR NO KEY UPDATE
    )"""

_HELD = """
        t.id = %(turn_id)s AND t.claim_token = %(token)s AND t.revision = %(revision)s AND t.status = 'running'"""

_RENEW = """
            revision = t.revision + 1,
            lease_expires_at = clock_timestamp() + make_interval(secs => %(lease_seconds)s)"""

# With a reservation the next model call is counted in the same write; without one its columns stay as they are.
_RESERVE = """
            phase = %(phase)s,
            iterations = t.iterations + CASE WHEN %(attempt_id)s::text IS NULL THEN 0 ELSE 1 END,
            request_id = COALESCE(%(request_id)s::text, t.request_id),
            attempt_id = %(attempt_id)s::text,
            attempt_started_at = CASE WHEN %(attempt_id)s::text IS NULL THEN NULL ELSE clock_timestamp() END"""

_NUMBER = """
    seq AS (
        UPDATE turnkit_conversation c SET next_sequence = c.next_sequence + 1
        FROM {source} WHERE c.id = fence.conversation_id AND %(has_message)s
        RETURNING c.id, c.next_sequence - 1 AS number
    )"""

_MESSAGE = """
    message AS (
        INSERT INTO turnkit_message (id, conversation_id, turn_id, tool_execution_id, sequence, role, kind, content,
                                     provider, metadata)
        SELECT %(message_id)s, seq.id, %(turn_id)s, %(execution_id)s::text, seq.number, %(role)s, %(kind)s,
               %(content)s::jsonb, %(provider)s, %(metadata)s::jsonb
        FROM seq
    )"""

STORE_REPLY = f"""
WITH {_LANE},
    fence AS (
        UPDATE turnkit_turn t SET {_RENEW}, {_RESERVE},
            model_failures = 0,
            broken_replies = CASE WHEN %(is_broken)s THEN t.broken_replies + 1 ELSE 0 END,
            input_tokens = t.input_tokens + %(input_tokens)s,
            output_tokens = t.output_tokens + %(output_tokens)s,
            cached_tokens = t.cached_tokens + %(cached_tokens)s,
            cache_write_tokens = t.cache_write_tokens + %(cache_write_tokens)s,
            thinking_tokens = t.thinking_tokens + %(thinking_tokens)s,
            cost = t.cost + %(cost)s::numeric
        FROM lane WHERE t.conversation_id = lane.id AND {_HELD}
        RETURNING t.id, t.conversation_id, t.pause_requested
    ),
{_NUMBER.format(source="fence")},
{_MESSAGE},
    calls AS (
        INSERT INTO turnkit_toolexecution (id, turn_id, tool_name, tool_call_id, call_key, ordinal, status, started_at,
                                           is_replay_safe, arguments_text, error)
        SELECT call.id, fence.id, call.tool_name, call.tool_call_id, call.call_key, call.ordinal, call.status,
               CASE WHEN call.status = 'running' THEN clock_timestamp() END,
               call.is_replay_safe, call.arguments_text, call.error
        FROM fence, jsonb_to_recordset(%(calls)s::jsonb) AS call(
            id text, tool_name text, tool_call_id text, call_key text, ordinal int, status text,
            is_replay_safe boolean, arguments_text text, error jsonb)
    )
SELECT id, 1, pause_requested FROM fence
"""
"""RUNNING → RUNNING. The model's answer, its bill and its calls."""

SETTLE_TOOL = f"""
WITH {_LANE},
    fence AS (
        UPDATE turnkit_turn t SET {_RENEW}, {_RESERVE}
        FROM lane WHERE t.conversation_id = lane.id AND {_HELD}
        RETURNING t.id, t.conversation_id, t.pause_requested
    ),
    settled AS (
        UPDATE turnkit_toolexecution x SET
            status = %(status)s,
            arguments = COALESCE(%(arguments)s::jsonb, x.arguments),
            result = %(result)s::jsonb,
            error = %(error)s::jsonb,
            started_at = COALESCE(x.started_at, clock_timestamp() - make_interval(secs => %(ran_seconds)s)),
            completed_at = clock_timestamp()
        FROM fence WHERE x.id = %(execution_id)s AND x.turn_id = fence.id AND x.status IN ('pending', 'running')
        RETURNING x.id
    ),
{_NUMBER.format(source="fence, settled")},
{_MESSAGE},
    started AS (
        UPDATE turnkit_toolexecution x SET status = 'running', started_at = clock_timestamp()
        FROM fence WHERE x.id = %(next_id)s AND x.turn_id = fence.id AND x.status = 'pending'
    )
SELECT id, (SELECT count(*) FROM settled), pause_requested FROM fence
"""
"""RUNNING → RUNNING. One tool's outcome with the message the model reads, and the start of what comes next: another
tool that may be repeated, or the next model call."""

START_TOOL = f"""
WITH fence AS (
        UPDATE turnkit_turn t SET {_RENEW} WHERE {_HELD} RETURNING t.id, t.pause_requested
    ),
    started AS (
        UPDATE turnkit_toolexecution x SET
            status = 'running', arguments = %(arguments)s::jsonb, started_at = clock_timestamp()
        FROM fence WHERE x.id = %(execution_id)s AND x.turn_id = fence.id AND x.status = 'pending'
        RETURNING x.id
    )
SELECT id, (SELECT count(*) FROM started), pause_requested FROM fence
"""
"""RUNNING → RUNNING. From here on the tool's effect is unknown until it is settled."""

RENEW_LEASES = """
WITH held AS (
        SELECT t.id FROM turnkit_turn t
        JOIN unnest(%(turn_ids)s::text[], %(tokens)s::text[]) AS mine(id, token)
            ON t.id = mine.id AND t.claim_token = mine.token
        WHERE t.status = 'running'
        ORDER BY t.id FOR NO KEY UPDATE OF t SKIP LOCKED
    )
UPDATE turnkit_turn t SET lease_expires_at = clock_timestamp() + make_interval(secs => %(lease_seconds)s)
FROM held WHERE t.id = held.id
RETURNING t.id
"""
"""RUNNING → RUNNING. All leases of a process; rows that are locked just now are skipped, and asked for again."""

_OPEN = "('pending', 'running', 'waiting', 'paused')"

LOCK_WITH_NEIGHBOURS = f"""SELECT t.* FROM turnkit_turn t
WHERE t.id = ANY(
    ARRAY(
        SELECT w.turn_id FROM turnkit_wait w JOIN turnkit_turn waiter ON waiter.id = w.turn_id
        WHERE w.target_id = ANY(%(turn_ids)s::varchar[]) AND waiter.status IN {_OPEN}
        UNION ALL
        SELECT w.target_id FROM turnkit_wait w JOIN turnkit_turn target ON target.id = w.target_id
        WHERE w.turn_id = ANY(%(turn_ids)s::varchar[]) AND target.status IN {_OPEN}
    ) || %(turn_ids)s::varchar[])
ORDER BY t.id FOR NO KEY UPDATE OF t
"""
"""The turns, and the unfinished ones on the other ends of their waits as the statement's start saw them."""

DESCENDANTS = f"""
WITH RECURSIVE below(id, level, path) AS (
        SELECT id, 1, ARRAY[id::text] FROM turnkit_turn WHERE parent_id = %(turn_id)s
    UNION ALL
        SELECT child.id, below.level + 1, below.path || child.id::text
        FROM below JOIN turnkit_turn child ON child.parent_id = below.id AND child.id <> ALL(below.path)
    )
SELECT below.*, count(*) OVER () AS total
FROM below JOIN turnkit_turn t ON t.id = below.id
ORDER BY t.status NOT IN {_OPEN}, path LIMIT %(limit)s
"""
"""The turns below one, with the ids on the way to each and the count of all: unfinished ones first."""

REACHED_LANES = f"""
WITH RECURSIVE reached(start, lane) AS (
        SELECT lane, lane FROM unnest(%(starts)s::varchar[]) AS begin(lane)
    UNION
        SELECT reached.start, target.conversation_id
        FROM reached
        CROSS JOIN LATERAL (
            SELECT id FROM turnkit_turn
            WHERE conversation_id = reached.lane AND status IN {_OPEN} AND lane_position IS NOT NULL
            UNION ALL
            SELECT id FROM turnkit_turn
            WHERE conversation_id = reached.lane AND status = 'pending' AND lane_position IS NULL
        ) AS waiting
        JOIN turnkit_wait w ON w.turn_id = waiting.id
        JOIN turnkit_turn target ON target.id = w.target_id AND target.status IN {_OPEN}
    )
SELECT DISTINCT start FROM reached WHERE lane = %(lane)s
"""
"""From which of the lanes `starts` the waits of unfinished turns lead to `lane`. An ended target ends the search.

The two halves of `waiting` are what two indexes find, however many turns of a lane have ended.
"""
