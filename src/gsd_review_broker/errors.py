"""The one exception that reaches a caller, and its codes."""

from enum import StrEnum


class Code(StrEnum):
    NOT_FOUND = "not_found"
    INVALID_ARGUMENT = "invalid_argument"
    INVALID_TRANSITION = "invalid_transition"
    ALREADY_CLAIMED = "already_claimed"
    STALE_CLAIM = "stale_claim"
    NOT_CLAIMANT = "not_claimant"
    SELF_REVIEW = "self_review"
    DIFF_INVALID = "diff_invalid"
    TOO_LARGE = "too_large"
    CONFLICT = "conflict"
    BUSY = "busy"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    UNAVAILABLE = "unavailable"
    INTERNAL = "internal"


class BrokerError(Exception):
    def __init__(self, code: Code, message: str, hint: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.code}: {self.message}\n{self.hint}" if self.hint else f"{self.code}: {self.message}"


class StartError(Exception):
    """The broker cannot start; the text is one sentence for the person who typed the command."""
