"""Who calls: made once where a request arrives, and handed to every command."""

from dataclasses import dataclass

from gsd_review_broker.domain.identity import Identity
from gsd_review_broker.domain.words import CallerKind


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
        """Under which name it acts: a proven caller under its own, whatever the call says."""
        return self.proven_identity or named


LOCAL = Caller(kind=CallerKind.LOCAL)
UNKNOWN = Caller(kind=CallerKind.UNKNOWN)


def person(identity: Identity) -> Caller:
    """Who sits at this machine, as far as the machine's account tells."""
    return Caller(kind=CallerKind.HUMAN, identity=identity)


def reviewer(identity: Identity) -> Caller:
    """A reviewer that proved its name by the token of its process."""
    return Caller(kind=CallerKind.REVIEWER, identity=identity, proven=True)
