"""Django settings of the measured project: as the docs advise, and without apps that the turn does not need."""

import os

import dj_database_url

SECRET_KEY = "only for benchmarks"  # noqa: S105
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["django_rq", "turnkit_django", "benchmarks"]

DATABASES = {"default": dict(dj_database_url.parse(os.environ["DATABASE_URL"], conn_health_checks=True))}
DATABASES["default"]["OPTIONS"] = {"pool": {"min_size": 0, "max_size": 8, "timeout": 10}}

RQ_QUEUES = {"turnkit": {"URL": os.environ["REDIS_URL"], "SERIALIZER": "json"}}
RQ = {"WORKER_CLASS": "turnkit_django.dispatch.Worker"}
TURNKIT = {"CLIENT": "benchmarks.model.InstantModel", "QUEUE": "turnkit"}
