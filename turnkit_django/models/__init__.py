"""The six models, which are the API: filter them, and call their verbs.

Rows and constraints live here; `turnkit_django.store` is the only writer.
"""

from turnkit_django.models.conversation import Conversation
from turnkit_django.models.delivery import Delivery
from turnkit_django.models.message import Message
from turnkit_django.models.tool_execution import ToolExecution
from turnkit_django.models.turn import Turn
from turnkit_django.models.wait import Wait

__all__ = ["Conversation", "Delivery", "Message", "ToolExecution", "Turn", "Wait"]
