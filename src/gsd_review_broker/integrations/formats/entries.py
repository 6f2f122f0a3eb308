"""One entry of ours in a client's configuration, and what a file format must be able to do with it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol, cast

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.integrations.formats.edits import Edit


class Missing(Enum):
    """Not there, which is something else than null."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING
_ADDRESS_KEYS = ("url", "httpUrl", "command", "args")


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A member at the end of a path of keys; or, for a list, one element of what is there."""

    path: tuple[str, ...]
    value: Any
    in_list: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed:
    """How an entry came into a text: enough to take it out again, even after others have changed the file."""

    entry: Entry
    edits: tuple[Edit, ...]
    prior: str | None
    """The text of a foreign value that ours replaced."""
    existing: int
    """How many keys of the path were there before; the containers after them are ours too."""


class UnreadableError(ValueError):
    """The file is not in its format; the text says where."""


class UnfitError(ValueError):
    """The file is fine, but our entry cannot be put into it without rewriting what is foreign."""


class Format(Protocol):
    def check(self, text: str) -> None:
        """Raises UnreadableError."""
        ...

    def find(self, text: str, path: Sequence[str]) -> Any:
        """The value at a path, or MISSING."""
        ...

    def put(self, text: str, entry: Entry) -> Placed:
        """No edits if it is there already."""
        ...

    def take(self, text: str, placed: Placed) -> tuple[Edit, ...]:
        """The edits that take it out of a text that others have changed since; none if it is theirs by now."""
        ...

    def is_blank(self, text: str) -> bool:
        """Does it say nothing at all, so that a file of ours may go?"""
        ...


def is_still_ours(value: Any, written: Any) -> bool:
    """A client adds keys of its own to a server's entry (approvals, say); with another address it is another's."""
    if isinstance(value, dict) and isinstance(written, dict):
        theirs = cast("dict[str, Any]", value)
        ours = cast("dict[str, Any]", written)
        return all(theirs.get(key) == ours.get(key) for key in _ADDRESS_KEYS)
    return bool(value == written)


def refused(path: object, why: str, hint: str) -> BrokerError:
    return BrokerError(Code.CONFLICT, f"{path}: {why}", f"{hint} Nothing was changed.")
