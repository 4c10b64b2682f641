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
from turnkit_django.store.transitions.controlling import cancel, pause, resume
from turnkit_django.store.transitions.delivering import (
    continue_lane,
    deliver,
    send,
    send_under_claim,
    set_deliveries_aside,
)
from turnkit_django.store.transitions.joining import open_waits, recount
from turnkit_django.store.transitions.launching import claim_child, join, launch, launch_detached, start_child
from turnkit_django.store.transitions.maintaining import give_up, ready, recover, set_aside
from turnkit_django.store.transitions.people import open_conversation, retry, say, start, submit
from turnkit_django.store.transitions.waking import unsent, wake_due
from turnkit_django.store.transitions.working import (
    acknowledge_pause,
    complete,
    fail,
    park,
    release,
    settle_tool,
    start_tool,
    store_reply,
)

__all__ = [
    "acknowledge_pause",
    "cancel",
    "claim",
    "claim_child",
    "claim_due",
    "claim_inline",
    "claim_new",
    "claim_this",
    "complete",
    "continue_lane",
    "deliver",
    "fail",
    "give_up",
    "join",
    "launch",
    "launch_detached",
    "open_conversation",
    "open_waits",
    "park",
    "pause",
    "ready",
    "recount",
    "recover",
    "release",
    "renew",
    "resume",
    "retry",
    "say",
    "send",
    "send_under_claim",
    "set_aside",
    "set_deliveries_aside",
    "settle_tool",
    "start",
    "start_child",
    "start_inline",
    "start_tool",
    "store_reply",
    "submit",
    "unsent",
    "wake_due",
]
