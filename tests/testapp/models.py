from django.db import models


class Effect(models.Model):
    """A side effect of a tool, counted."""

    name = models.TextField()
    key = models.TextField(blank=True)
    n = models.IntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.name} {self.n}"


class Note(models.Model):
    """What a process says of itself: which code it reached, and on which connection. A tool can also wait for one."""

    name = models.TextField()
    key = models.TextField(blank=True)
    pid = models.IntegerField(default=0)
    backend = models.IntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.name} {self.key} by {self.pid}"
