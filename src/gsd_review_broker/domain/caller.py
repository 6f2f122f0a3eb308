"""Who calls, and the tokens that prove it. The broker knows only a token's hash."""

from dataclasses import dataclass

from gsd_review_broker.domain.model import Identity, Milliseconds
from gsd_review_broker.domain.text import HUMAN_PREFIX
from gsd_review_broker.domain.words import CallerKind, TokenRole, TokenState


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    kind: CallerKind
    # Without one, calls name who acts.
    identity: Identity | None = None
    # By a token, whatever the call says.
    proven: bool = False
    # The only one that it sees and touches; None: all.
    project: str | None = None

    @property
    def proven_identity(self) -> Identity | None:
        return self.identity if self.proven else None

    @property
    def is_administrator(self) -> bool:
        return self.kind is CallerKind.ADMIN

    def acting(self, named: Identity | None) -> Identity | None:
        """Return the name that the caller acts under: a proven caller's own, whatever the call says."""
        return self.proven_identity or named


LOCAL = Caller(kind=CallerKind.LOCAL)
UNKNOWN = Caller(kind=CallerKind.UNKNOWN)


def person(identity: Identity) -> Caller:
    """Return the person at this machine, by the name of the account."""
    return Caller(kind=CallerKind.HUMAN, identity=identity)


def reviewer(identity: Identity) -> Caller:
    """Return a reviewer that proved its name by the token of its process."""
    return Caller(kind=CallerKind.REVIEWER, identity=identity, proven=True)


# How the text of a token begins, so that people and secret scanners recognize one.
ISSUED_PREFIX = "tdm_"


@dataclass(frozen=True, kw_only=True, slots=True)
class SignInLink:
    """A link to the dashboard that works once. Neither its code nor the token can be read from it."""

    # The hash of its code.
    hash: str
    # Only the holder of the code can read the token.
    sealed_token: str
    page: str
    expires_at: Milliseconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Token:
    hash: str
    name: str
    role: TokenRole
    # The only project that its holder sees; None: all.
    project: str | None
    created_at: Milliseconds
    created_by: Identity
    # None: it does not expire.
    expires_at: Milliseconds | None
    revoked_at: Milliseconds | None = None

    @property
    def identity(self) -> Identity:
        return Identity(f"{HUMAN_PREFIX}{self.name}" if self.role is TokenRole.HUMAN else self.name)

    def state(self, now: Milliseconds) -> TokenState:
        if self.revoked_at is not None:
            return TokenState.REVOKED
        is_over = self.expires_at is not None and self.expires_at <= now
        return TokenState.EXPIRED if is_over else TokenState.LIVE

    def caller(self) -> Caller:
        return Caller(kind=CallerKind(self.role.value), identity=self.identity, proven=True, project=self.project)
