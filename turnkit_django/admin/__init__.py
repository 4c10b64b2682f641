"""The admin's pages of the six models: everything can be seen, nothing edited, and turns can be cancelled."""

from __future__ import annotations

from django.contrib import admin

from turnkit_django.admin.conversations import ConversationAdmin
from turnkit_django.admin.rows import DeliveryAdmin, MessageAdmin, ToolExecutionAdmin, WaitAdmin
from turnkit_django.admin.turns import TurnAdmin
from turnkit_django.models import Conversation, Delivery, Message, ToolExecution, Turn, Wait

admin.site.register(Conversation, ConversationAdmin)
admin.site.register(Turn, TurnAdmin)
admin.site.register(Message, MessageAdmin)
admin.site.register(ToolExecution, ToolExecutionAdmin)
admin.site.register(Delivery, DeliveryAdmin)
admin.site.register(Wait, WaitAdmin)
