"""Calls that may be repeated."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class IdempotencyKey:
    """One call that may be repeated. The same key with other arguments is a conflict."""

    project: str
    tool: str
    key: str
    arguments_hash: str


KEY_LIFETIME_MILLISECONDS = 24 * 3_600_000
