"""The one exception that reaches a caller, and its codes."""

from enum import StrEnum
from typing import NamedTuple


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


class Next(StrEnum):
    """A next step, which each front end names in its own words: a tool, a command, a button (service/wire/hints.py)."""

    ANOTHER_REVIEWER = "another_reviewer"
    CLAIM_ANOTHER = "claim_another"
    CLAIM_ANOTHER_OR_RETRY = "claim_another_or_retry"
    CLAIM_AGAIN = "claim_again"
    NAME_THE_CLAIM = "name_the_claim"
    SEND_MESSAGE = "send_message"
    WRITE_AS_YOURSELF = "write_as_yourself"
    ACT_AS_PROPOSER = "act_as_proposer"
    CONTINUE_IN_ANOTHER = "continue_in_another"
    SPLIT = "split"
    POSSIBLE_NOW = "possible_now"
    LIST_REVIEWS = "list_reviews"
    LIST_FILES = "list_files"
    LIST_FINDINGS = "list_findings"
    LIST_MESSAGES = "list_messages"
    READ_COUNTER_PATCH = "read_counter_patch"
    REPEAT_CURSOR = "repeat_cursor"
    LIST_REVIEWERS = "list_reviewers"
    LIST_OWN_REVIEWERS = "list_own_reviewers"
    LIST_RUNNING_REVIEWERS = "list_running_reviewers"


# A client asks for its own wording with this header; without it, steps are worded as tools.
WORDING_HEADER = "tandem-hints"


class NextStep(NamedTuple):
    kind: Next
    # Values for the wording: a number of seconds, the commands that are possible.
    seconds: int = 0
    commands: tuple[str, ...] = ()


class BrokerError(Exception):
    """The hint is a sentence for every caller, or a next step that the front end puts into words."""

    def __init__(self, code: Code, message: str, hint: str | NextStep) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint if isinstance(hint, str) else ""
        self.next = None if isinstance(hint, str) else hint

    def __str__(self) -> str:
        return f"{self.code}: {self.message}\n{self.hint}" if self.hint else f"{self.code}: {self.message}"

    def as_json(self, hint: str | None = None) -> dict[str, str]:
        """Return what every front end sends, with the hint in that front end's own words, if it has any."""
        return {"code": self.code.value, "message": self.message, "hint": self.hint if hint is None else hint}


def broker_failed() -> BrokerError:
    """Answer an unexpected error; the log has the traceback."""
    return BrokerError(Code.INTERNAL, "the broker failed; see its log", "Try again; if it fails again, report it.")


def changed_since(why: str) -> BrokerError:
    """Refuse a decision about content that has changed since the caller saw it."""
    return BrokerError(Code.CONFLICT, why, "Nothing was decided. Read the review again, then decide.")


class StartError(Exception):
    """The broker cannot start; the text is one sentence for the person who typed the command."""


def unauthenticated(*, has_token: bool) -> BrokerError:
    """Refuse the caller, without telling an unknown token from one that expired or was revoked."""
    return BrokerError(
        Code.UNAUTHENTICATED,
        "this token is unknown, has expired or was revoked" if has_token else "this broker needs a token",
        "Send Authorization: Bearer TOKEN. An administrator makes one with `tandem token new`; commands take it from "
        "BROKER_TOKEN, or from the file `token` in your configuration folder.",
    )
