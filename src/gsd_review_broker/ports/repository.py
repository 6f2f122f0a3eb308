"""git, as services see it."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True, slots=True)
class Offset:
    """A hunk (counted from 1) that applies this many lines below (or above) its line, since the file has changed."""

    path: str
    hunk: int
    offset: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Applies:
    """git accepted the diff.

    The digest is None if only the work tree accepted it, or it is not in HEAD. Offsets say how far HEAD has moved from
    the base of an older diff.
    """

    digest: str | None
    offsets: tuple[Offset, ...] = ()
    # What the digest is made of: the sorted records; and where: the root commit and the git folder.
    records: bytes | None = None
    repository: str | None = None
    folder: str | None = None
    # The commit that it was checked against.
    base: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DoesNotApply:
    git_says: str


class Repository(Protocol):
    """git, read only."""

    async def resolve_workspace(self, workspace: str | None) -> str | None:
        """The workspace's root. Refuses paths that the configuration does not allow."""
        ...

    async def project_of(self, workspace: str | None) -> str | None:
        """The same name in every clone and work tree of a repository; None for the broker's own repository."""
        ...

    async def root_commit(self, workspace: str) -> str | None:
        """All clones of a repository have the same; None before the first commit, and in a shallow clone."""
        ...

    async def check(self, workspace: str | None, diff: bytes, *, already_applied: bool) -> Applies | DoesNotApply: ...

    async def records_on(self, workspace: str, base: str, diff: bytes) -> bytes | None:
        """The records of the change if the diff is applied to this commit; None if it does not apply."""
        ...

    async def blob(self, workspace: str, object_id: str, *, most: int) -> bytes:
        """A file's content, hashed again. Raises BrokerError if it is missing or has more than `most` bytes."""
        ...
