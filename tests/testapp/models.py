from django.db import models


class Effect(models.Model):
    """A side effect of a tool, counted."""

    name = models.TextField()
    key = models.TextField(blank=True)
    n = models.IntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.name} {self.n}"
