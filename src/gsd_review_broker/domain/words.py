"""The words of the product, each list once: what the wire, the database and the pages call things.

The command line, the schemas of the tools, the pages, exit codes and prompts take their lists from here. Importing it
takes about 2 ms: it has enums and small tables, and imports nothing but `enum`.
"""

from enum import StrEnum

# The state of a review, and whose turn it is.


class Status(StrEnum):
    PENDING = "pending"
    CLAIMED = "claimed"
    IN_REVIEW = "in_review"
    APPROVED = "approved"
    CHANGES_REQUESTED = "changes_requested"
    CLOSED = "closed"


REVIEWERS_TURN = (Status.PENDING, Status.CLAIMED, Status.IN_REVIEW)
# The proposer reads a verdict, or that it is over.
PROPOSERS_TURN = (Status.CHANGES_REQUESTED, Status.APPROVED, Status.CLOSED)
# A reviewer is judging it now: it is claimed and has no verdict yet.
CLAIM_IS_LIVE = (Status.CLAIMED, Status.IN_REVIEW)


class Outcome(StrEnum):
    """How a review was closed."""

    APPROVED = "approved"
    CHANGES_REQUESTED = "changes_requested"
    WITHDRAWN = "withdrawn"


class Category(StrEnum):
    PLAN_REVIEW = "plan_review"
    CODE_CHANGE = "code_change"
    VERIFICATION = "verification"
    HANDOFF = "handoff"


class Priority(StrEnum):
    CRITICAL = "critical"
    NORMAL = "normal"
    LOW = "low"


class Verdict(StrEnum):
    APPROVED = "approved"
    CHANGES_REQUESTED = "changes_requested"
    COMMENT = "comment"


# Other spellings that reviewers use.
VERDICT_SPELLINGS = {"approve": Verdict.APPROVED, "request_changes": Verdict.CHANGES_REQUESTED}


class Fence(StrEnum):
    """Which verdicts must name their claim."""

    STRICT = "strict"
    MANAGED = "managed"


class CounterPatchStatus(StrEnum):
    PENDING = "pending"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    SUPERSEDED = "superseded"


def proposer_must_act(status: str, counter_patch_status: str | None) -> bool:
    """Tell whether there is a verdict, the review is closed, or there is an offer to answer."""
    return status in PROPOSERS_TURN or counter_patch_status == CounterPatchStatus.PENDING


# Findings, and the lines that they are about.


class Severity(StrEnum):
    """The most important first."""

    CRITICAL = "critical"
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


# Nothing that has such an open finding should be approved: high, and all that is more important.
GRAVE = tuple(Severity)[: tuple(Severity).index(Severity.HIGH) + 1]
# Other spellings that reviewers use.
SEVERITY_SPELLINGS = {
    "P0": Severity.CRITICAL,
    "P1": Severity.HIGH,
    "P2": Severity.MEDIUM,
    "P3": Severity.LOW,
    "blocker": Severity.CRITICAL,
    "nit": Severity.LOW,
}


class Disposition(StrEnum):
    OPEN = "open"
    FIXED = "fixed"
    REJECTED = "rejected"
    DEFERRED = "deferred"


# What can be done about a finding.
RESOLUTIONS = tuple(disposition for disposition in Disposition if disposition is not Disposition.OPEN)


class Anchor(StrEnum):
    """Whether the lines that a finding is about are in the newest revision."""

    ANCHORED = "anchored"
    UNANCHORED = "unanchored"
    OUTDATED = "outdated"


class Side(StrEnum):
    OLD = "old"
    NEW = "new"


class Operation(StrEnum):
    """What a diff does to a file."""

    CREATE = "create"
    MODIFY = "modify"
    DELETE = "delete"
    RENAME = "rename"


# Who acts.


class Role(StrEnum):
    """The two sides of a review."""

    PROPOSER = "proposer"
    REVIEWER = "reviewer"


class Audience(StrEnum):
    """The endpoints: /mcp shows all tools, /mcp/ROLE those that the role uses."""

    ALL = "all"
    PROPOSER = "proposer"
    REVIEWER = "reviewer"
    OBSERVER = "observer"

    @property
    def endpoint(self) -> str:
        return "/mcp" if self is Audience.ALL else f"/mcp/{self.value}"

    @property
    def proposes(self) -> bool:
        return self in {Audience.PROPOSER, Audience.ALL}

    @property
    def reviews(self) -> bool:
        return self in {Audience.REVIEWER, Audience.ALL}


# The endpoints that show the tools of one role.
ROLES_WITH_TOOLS = tuple(audience for audience in Audience if audience is not Audience.ALL)


class TokenRole(StrEnum):
    """What a token allows."""

    PROPOSER = "proposer"
    REVIEWER = "reviewer"
    OBSERVER = "observer"
    HUMAN = "human"
    ADMIN = "admin"


class TokenState(StrEnum):
    LIVE = "live"
    EXPIRED = "expired"
    REVOKED = "revoked"


class CallerKind(StrEnum):
    """A token's role, or why there is none."""

    # Nothing is proven, and on the loopback nothing has to be: callers are who they say.
    LOCAL = "local"
    PROPOSER = "proposer"
    REVIEWER = "reviewer"
    OBSERVER = "observer"
    HUMAN = "human"
    ADMIN = "admin"
    # The caller's token is of no use: unknown, expired or revoked.
    UNKNOWN = "unknown"


# Programs and their vendors.

# The programs that the pool can start as reviewers. To add one: its name here, and a module of the same name in
# `pool/agents` (a dash in the name is an underscore in the module's). If it is always the same vendor's model
# that it uses, it gets a line in VENDORS, too.
AGENTS = ("codex", "claude", "gemini", "opencode", "command")
# The user's own program, which takes any model.
OWN_COMMAND = "command"
DEFAULT_AGENT = AGENTS[0]
# What can be looked for on the PATH.
PROGRAMS = tuple(name for name in AGENTS if name != OWN_COMMAND)
# The programs that propose or review, and that `tandem install` can set up. To add one: its name here, and a module of
# the same name in `integrations/clients` that exports CLIENT.
CLIENTS = ("claude", "codex", "gemini", "opencode")
# What runs inside one of these clients.
OVERLAYS = ("gsd",)
INSTALLABLE = (*CLIENTS, *OVERLAYS)
# Who makes a program's models, by the first word of the program's name. A program that is not here, or that has None,
# may use any vendor's models: its vendor is unknown.
VENDORS = {
    "claude": "anthropic",
    "codex": "openai",
    "command": None,
    "gemini": "google",
    "gpt": "openai",
    "opencode": None,
}


class ReviewerState(StrEnum):
    """Of a process that the pool started."""

    ACTIVE = "active"
    DRAINING = "draining"
    TERMINATED = "terminated"


class EndReason(StrEnum):
    """Why a reviewer was drained or stopped."""

    TTL = "ttl"
    IDLE = "idle"
    MANUAL = "manual"
    # By itself.
    EXITED = "exited"
    # It let its claim run out, or did not finish in time.
    HUNG = "hung"
    BROKER_STOPPED = "broker_stopped"
    # The broker was killed; the next one stopped the processes it left behind.
    BROKER_DIED = "broker_died"


class WorkOutcome(StrEnum):
    """What became of a claim of a pool's reviewer."""

    APPROVED = "approved"
    CHANGES_REQUESTED = "changes_requested"
    RELEASED = "released"
    RECLAIMED = "reclaimed"
    TAKEN_OVER = "taken_over"
    # The proposer ended it first: by closing, or by accepting a counter-patch.
    WITHDRAWN = "withdrawn"
    SUPERSEDED = "superseded"


# The audit.


class EventType(StrEnum):
    REVIEW_CREATED = "review_created"
    REVIEW_REVISED = "review_revised"
    REVIEW_CLAIMED = "review_claimed"
    REVIEW_AUTO_REJECTED = "review_auto_rejected"
    REVIEW_RELEASED = "review_released"
    REVIEW_RECLAIMED = "review_reclaimed"
    VERDICT_SUBMITTED = "verdict_submitted"
    VERDICT_COMMENT = "verdict_comment"
    VERDICT_REFUSED = "verdict_refused"
    FINDING_RESOLVED = "finding_resolved"
    MESSAGE_SENT = "message_sent"
    COUNTER_PATCH_OFFERED = "counter_patch_offered"
    COUNTER_PATCH_ACCEPTED = "counter_patch_accepted"
    COUNTER_PATCH_REJECTED = "counter_patch_rejected"
    HUMAN_REQUESTED = "human_requested"
    HUMAN_CLEARED = "human_cleared"
    REVIEW_CLOSED = "review_closed"
    AUDIT_CHECKPOINT = "audit_checkpoint"
    REVIEWER_SPAWNED = "reviewer_spawned"
    REVIEWER_DRAIN_START = "reviewer_drain_start"
    REVIEWER_TERMINATED = "reviewer_terminated"
    GATE_REFUSED = "gate_refused"
    GATE_OVERRIDDEN = "gate_overridden"
    COMMIT_LANDED = "commit_landed"
    ACCESS_REFUSED = "access_refused"


def values(words: type[StrEnum] | tuple[StrEnum, ...]) -> list[str]:
    """Return plain strings, for schemas and for the choices of a command."""
    return [word.value for word in words]


def either(words: tuple[str, ...], *, joined: str = "or") -> str:
    """Return the words as a sentence names them: "critical, high, medium or low"."""
    *first, last = words
    return f"{', '.join(first)} {joined} {last}" if first else last
