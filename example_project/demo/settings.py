"""The example's settings for the demo: a dead worker is noticed in seconds, and a worker may be told where to stop."""

import os

# Importing it is what makes a process honour TURNKIT_CRASH_AT.
import turnkit_django.testing  # noqa: F401
from example_project.settings import *  # noqa: F403
from example_project.settings import TURNKIT as _TURNKIT

TURNKIT = {
    **_TURNKIT,
    "LEASE_SECONDS": 3,
    # A model whose price is known, so that there is a cost to show.
    "DEFAULT_MODEL": os.environ.get("DEMO_MODEL") or "openai/gpt-5-mini",
}
