"""Exit codes: one table, so that scripts can rely on it."""

from enum import IntEnum

from gsd_review_broker.errors import Code


class Exit(IntEnum):
    DONE = 0
    FAILED = 1
    USAGE = 2
    UNAVAILABLE = 3
    NOT_ALLOWED = 4
    REFUSED = 5
    CONFLICT = 6
    NOT_FOUND = 7
    PENDING = 8
    INTERRUPTED = 130
    # A shell's exit code for a program that SIGPIPE stopped.
    NOBODY_READS = 141


OF_ERROR = {
    Code.NOT_FOUND: Exit.NOT_FOUND,
    Code.INVALID_ARGUMENT: Exit.USAGE,
    Code.INVALID_TRANSITION: Exit.CONFLICT,
    Code.ALREADY_CLAIMED: Exit.CONFLICT,
    Code.STALE_CLAIM: Exit.CONFLICT,
    Code.NOT_CLAIMANT: Exit.CONFLICT,
    Code.SELF_REVIEW: Exit.NOT_ALLOWED,
    Code.DIFF_INVALID: Exit.REFUSED,
    Code.TOO_LARGE: Exit.USAGE,
    Code.CONFLICT: Exit.CONFLICT,
    Code.BUSY: Exit.UNAVAILABLE,
    Code.UNAUTHENTICATED: Exit.NOT_ALLOWED,
    Code.FORBIDDEN: Exit.NOT_ALLOWED,
    Code.UNAVAILABLE: Exit.UNAVAILABLE,
    Code.INTERNAL: Exit.FAILED,
}
