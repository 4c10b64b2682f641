"""The project of the soak: that of the benchmarks, with leases short enough to see many workers die."""

from benchmarks.settings import DATABASES, DEFAULT_AUTO_FIELD, RQ, RQ_QUEUES, SECRET_KEY, USE_TZ  # noqa: F401

INSTALLED_APPS = ["django_rq", "turnkit_django", "benchmarks.soak"]

# All else is the default, MAX_RECOVERIES too: a turn holds a worker for a tenth of a second at a time, so six kills of
# one turn are a sign of a fault rather than of bad luck.
TURNKIT = {"CLIENT": "benchmarks.soak.client.LoopbackClient", "LEASE_SECONDS": 3}

# While PostgreSQL is away the pool tells of each try.
LOGGING = {"version": 1, "loggers": {"psycopg.pool": {"level": "CRITICAL"}}}
