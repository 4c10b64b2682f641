"""What the scans of maintenance and claims cost, with few and with many finished turns: `python -m benchmarks.scans`.

It starts a PostgreSQL of its own, fills it twice, and prints a table for `docs/operations.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import django

from turnkit_django.testing.servers import embedded_servers

FEW, MANY, REPEATS, DUE = 1_000, 1_000_000, 7, 100
# Ten finished turns to a conversation; every tenth of them got a message and waited for the turn before it.
FINISHED = """
INSERT INTO turnkit_conversation (id, agent_name, metadata, context, next_sequence, next_lane_position)
SELECT 'conv_old_' || n, 'shop', '{{}}', '{{}}', 100, 100 FROM generate_series(1, {turns} / 10) n;
INSERT INTO turnkit_turn (id, conversation_id, agent_name, model, context, options, max_iterations, max_output_tokens,
                          status, lane_position, submitted_at, started_at, completed_at)
SELECT 'turn_old_' || n, 'conv_old_' || n / 10 + 1, 'shop', 'x', '{{}}', '{{}}', 1, 1, 'completed', n % 10 + 1,
       t, t, t FROM generate_series(0, {turns} - 1) n, LATERAL (SELECT now() - make_interval(secs => {turns} - n) t) at;
INSERT INTO turnkit_message (id, conversation_id, turn_id, sequence, role, kind, content, provider, metadata)
SELECT 'msg_old_' || n, 'conv_old_' || n, 'turn_old_' || (n - 1) * 10, 1, 'user', 'text', '[]', '', '{{}}'
FROM generate_series(1, {turns} / 10) n;
INSERT INTO turnkit_delivery (id, destination_id, receiving_turn_id, message_id, key, text, request_id, delivered_at)
SELECT 'dlv_old_' || n, 'conv_old_' || n, 'turn_old_' || (n - 1) * 10, 'msg_old_' || n, n, 'hi', 'sent', now()
FROM generate_series(1, {turns} / 10) n;
INSERT INTO turnkit_wait (id, turn_id, target_id)
SELECT 'wait_old_' || n, 'turn_old_' || n * 10, 'turn_old_' || n * 10 - 1 FROM generate_series(1, {turns} / 10 - 1) n;
"""
# In each state as many turns, each alone in its lane; then messages to deliver, and messages to have read.
OPEN = """
INSERT INTO turnkit_conversation (id, agent_name, metadata, context)
SELECT 'conv_' || kind || n, 'shop', '{{}}', '{{}}'
FROM generate_series(1, {due}) n, unnest('{{expired,ready,missing,late,silent,woken,pending,unread}}'::text[]) kind;
INSERT INTO turnkit_turn (id, conversation_id, agent_name, model, context, options, max_iterations, max_output_tokens,
                          status, lane_position, submitted_at, started_at, claim_token, claimed_by, claimed_at,
                          lease_expires_at, not_before, pending_dependencies, deadline_at, wake_sent_at)
SELECT 'turn_' || kind || n, 'conv_' || kind || n, 'shop', 'x', '{{}}', '{{}}', 1, 1,
       CASE WHEN dead THEN 'running' WHEN kind IN ('ready', 'missing') THEN 'waiting' ELSE 'pending' END, 1, now(),
       CASE WHEN dead THEN now() END, CASE WHEN dead THEN 'token' || n END, CASE WHEN dead THEN 'gone:1:1' END,
       CASE WHEN dead THEN now() END, CASE WHEN dead THEN now() END, CASE WHEN kind = 'ready' THEN now() END,
       CASE WHEN kind = 'missing' THEN 1 ELSE 0 END, CASE WHEN kind = 'late' THEN now() END,
       CASE WHEN kind IN ('late', 'woken') THEN now() + interval '1 hour' END
FROM generate_series(1, {due}) n, unnest('{{expired,ready,missing,late,silent,woken}}'::text[]) kind,
     LATERAL (SELECT kind = 'expired' AS dead) state;
INSERT INTO turnkit_message (id, conversation_id, sequence, role, kind, content, provider, metadata)
SELECT 'msg_' || n, 'conv_unread' || n, 1, 'user', 'text', '[]', '', '{{}}' FROM generate_series(1, {due}) n;
INSERT INTO turnkit_delivery (id, destination_id, key, text, message_id, delivered_at)
SELECT 'dlv_' || kind || n, 'conv_' || kind || n, n, 'hi',
       CASE WHEN kind = 'unread' THEN 'msg_' || n END, CASE WHEN kind = 'unread' THEN now() END
FROM generate_series(1, {due}) n, unnest('{{pending,unread}}'::text[]) kind;
"""


def scans() -> dict[str, Callable[[], object]]:
    from turnkit_django.store import inboxes, reads
    from turnkit_django.store.locks import Locks

    return {
        "turns of dead workers": lambda: reads.expired(limit=DUE),
        "waiting turns that count too much": lambda: reads.miscounted(limit=DUE),
        "waiting turns whose time has come": lambda: reads.ready(limit=DUE),
        "turns past their deadline": lambda: reads.overdue(limit=DUE),
        "messages to deliver": lambda: inboxes.pending(limit=DUE),
        "conversations to go on with": lambda: inboxes.lanes_to_continue(limit=DUE),
        "heads of lanes without a wake-up": lambda: Locks().idle_turns(reads.unwoken(), limit=DUE),
        "a lane for a claim": lambda: Locks().free_lanes(limit=1),
        "whether anything is due": lambda: (reads.has_due(), inboxes.has_work()),
    }


def measured() -> dict[str, tuple[float, int]]:
    """Of each scan: milliseconds and 8 kB pages looked at."""
    return {name: _cost(scan) for name, scan in scans().items()}


def _cost(scan: Callable[[], object]) -> tuple[float, int]:
    from django.db import connection, transaction
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connection) as captured, transaction.atomic():
        scan()
    selects = [each["sql"] for each in captured.captured_queries if each["sql"].startswith("SELECT ")]
    times, pages = [], 0
    for _ in range(REPEATS):
        with transaction.atomic():
            plans = [_explained(sql) for sql in selects]
            transaction.set_rollback(True)
        times.append(sum(plan["Planning Time"] + plan["Execution Time"] for plan in plans))
        pages = sum(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"] for plan in plans)
    return median(times), pages


def _explained(sql: str) -> Any:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}")
        found = cursor.fetchone()[0]
    return (json.loads(found) if isinstance(found, str) else found)[0]


def fill(turns: int) -> None:
    from django.core.management import call_command
    from django.db import connection

    call_command("flush", interactive=False, verbosity=0)
    with connection.cursor() as cursor:
        for part in (FINISHED.format(turns=turns), OPEN.format(due=DUE)):
            for statement in part.split(";\n"):
                if statement.strip():
                    cursor.execute(statement)
        cursor.execute("VACUUM ANALYZE")


def rows(few: dict[str, tuple[float, int]], many: dict[str, tuple[float, int]]) -> Iterator[str]:
    for name, (milliseconds, pages) in few.items():
        later, more = many[name]
        yield f"| {name} | {milliseconds:.1f} | {pages:,} | {later:.1f} | {more:,} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=MANY, help="finished turns of the large filling")
    turns = parser.parse_args().turns
    with embedded_servers(redis=False) as servers:
        os.environ |= {"DATABASE_URL": servers.database_url, "REDIS_URL": "redis://127.0.0.1:1"}
        os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.settings"
        django.setup()
        from django.core.management import call_command
        from django.db import connection

        call_command("migrate", verbosity=0)
        found = []
        for count in (FEW, turns):
            fill(count)
            found.append(measured())
        version = connection.cursor().connection.info.server_version
        connection.close_pool()
    lines = [
        f"PostgreSQL {version // 10000}.{version % 10000}, {platform.machine()}, {os.cpu_count()} cores",
        "",
        f"| scan | ms at {FEW:,} | pages | ms at {turns:,} | pages |",
        "| --- | --- | --- | --- | --- |",
        *rows(*found),
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
