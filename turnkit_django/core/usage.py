"""Tokens of model calls, in exclusive buckets."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Usage:
    """What model calls used. The five token counts never overlap, so they can be priced and added.

    Attributes:
        input_tokens: Prompt tokens that were neither read from nor written to a cache.
        output_tokens: Answer tokens without thinking.
        cached_tokens: Prompt tokens read from the provider's cache.
        cache_write_tokens: Prompt tokens written to the provider's cache.
        thinking_tokens: Reasoning tokens.
        unknown_attempts: Calls that were sent and never heard of again: their bill is unknown.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    thinking_tokens: int = 0
    unknown_attempts: int = 0

    @property
    def total_tokens(self) -> int:
        return (
            self.input_tokens + self.output_tokens + self.cached_tokens + self.cache_write_tokens + self.thinking_tokens
        )

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(Usage)))

    def counts(self) -> dict[str, int]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def as_dict(self) -> dict[str, int]:
        return self.counts() | {"total_tokens": self.total_tokens}
