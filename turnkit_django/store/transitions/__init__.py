"""Every change of state: one function a move, one transaction each. The first line of each docstring is
`FROM → TO. What else happens.`
"""

from turnkit_django.store.transitions.claiming import (
    claim,
    claim_due,
    claim_inline,
    claim_new,
    claim_this,
    renew,
    start_inline,
)
from turnkit_django.store.transitions.maintaining import give_up, ready, recover, set_aside
from turnkit_django.store.transitions.people import cancel, open_conversation, say, start, submit
from turnkit_django.store.transitions.waking import unsent, wake_due
from turnkit_django.store.transitions.working import (
    complete,
    fail,
    park,
    release,
    settle_tool,
    start_tool,
    store_reply,
)

__all__ = [
    "cancel",
    "claim",
    "claim_due",
    "claim_inline",
    "claim_new",
    "claim_this",
    "complete",
    "fail",
    "give_up",
    "open_conversation",
    "park",
    "ready",
    "recover",
    "release",
    "renew",
    "say",
    "set_aside",
    "settle_tool",
    "start",
    "start_inline",
    "start_tool",
    "store_reply",
    "submit",
    "unsent",
    "wake_due",
]
