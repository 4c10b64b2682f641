"""The rows as text, to show that something changed nothing."""

from django.apps import apps

from turnkit_django.models import Conversation


def rows_of(*conversations: Conversation) -> list[str]:
    """Every row that belongs to these conversations, and every effect of the tools so far."""
    chosen = [conversation.pk for conversation in conversations]
    path = {"Conversation": "pk", "Turn": "conversation", "Message": "conversation"} | {
        "ToolExecution": "turn__conversation"
    }
    found = []
    for name, to_conversation in path.items():
        model = apps.get_model("turnkit", name)
        rows = model.objects.filter(**{f"{to_conversation}__in": chosen}).order_by("pk")
        found += [f"{name} {sorted(row.items())}" for row in rows.values()]
    assert len(found) > len(chosen)
    return found
