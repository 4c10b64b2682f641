from django.db import models


class Mark(models.Model):
    """A tool was here: its body began, or took effect."""

    class Kind(models.TextChoices):
        BEGUN = "begun"
        EFFECT = "effect"

    kind = models.TextField(choices=Kind.choices)
    tool = models.TextField()
    key = models.TextField(help_text="The idempotency key of the call.")
    n = models.IntegerField(help_text="The number of the task that asked for it.")

    class Meta:
        app_label = "soak"
        indexes = [models.Index(fields=["kind", "tool", "key"], name="soak_mark_of_a_call")]

    def __str__(self) -> str:
        return f"{self.tool} {self.kind} {self.n}"
