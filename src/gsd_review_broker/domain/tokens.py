"""A token: who holds it, what it allows, and how long. Its text is known to its holder alone; we keep a hash."""

from dataclasses import dataclass

from gsd_review_broker.domain.caller import Caller
from gsd_review_broker.domain.identity import HUMAN_PREFIX
from gsd_review_broker.domain.model import Identity, Milliseconds
from gsd_review_broker.domain.words import CallerKind, TokenRole, TokenState

# How the text of a token begins, so that people and secret scanners recognize one.
PREFIX = "tdm_"


@dataclass(frozen=True, kw_only=True, slots=True)
class SignInLink:
    """A link to the dashboard that works once. Its code and its holder's token are not in it."""

    # Of its code.
    hash: str
    # Only whoever has the code can read the token.
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
        """The name that rules compare."""
        return Identity(f"{HUMAN_PREFIX}{self.name}" if self.role is TokenRole.HUMAN else self.name)

    def state(self, now: Milliseconds) -> TokenState:
        if self.revoked_at is not None:
            return TokenState.REVOKED
        is_over = self.expires_at is not None and self.expires_at <= now
        return TokenState.EXPIRED if is_over else TokenState.LIVE

    def caller(self) -> Caller:
        return Caller(kind=CallerKind(self.role.value), identity=self.identity, proven=True, project=self.project)
