"""The languages of clients' files, edited as text, so that foreign content keeps every byte.

Here is what they share: one entry of ours, and what a format must be able to do with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, cast

from gsd_review_broker.errors import BrokerError, Code

Language = Literal["json", "toml"]
BYTE_ORDER_MARK = "\ufeff"


# Absent, which differs from null.
MISSING: Final = object()
_ADDRESS_KEYS = ("url", "httpUrl", "command", "args")


@dataclass(frozen=True, slots=True)
class Edit:
    """Replaces what stands from start to end with text."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigEntry:
    """A member at the end of a path of keys; or, for a list, one element of what is there."""

    path: tuple[str, ...]
    value: Any
    in_list: bool = False
    is_default: bool = False
    """Written only where there is no value: the user's own value applies."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedEntry:
    """How an entry was put into a text: enough to remove it, even after others have changed the file."""

    entry: ConfigEntry
    edits: tuple[Edit, ...] = ()
    prior: str | None = None
    """The text of a foreign value that ours replaced."""
    existing: int = 0
    """How many keys of the path were there before; the containers after them are ours too."""


class InvalidConfigError(ValueError):
    """The file is not valid in its format; the message says where."""


class UnfitError(ValueError):
    """The file is valid, but our entry cannot be added without rewriting foreign content."""


class Format(Protocol):
    def check(self, text: str) -> None:
        """Raise InvalidConfigError if the text is not valid."""
        ...

    def find(self, text: str, path: Sequence[str]) -> Any:
        """Return the value at a path, or MISSING."""
        ...

    def put(self, text: str, entry: ConfigEntry) -> PlacedEntry:
        """Place an entry, without edits if it is already there."""
        ...

    def take(self, text: str, placed: PlacedEntry) -> tuple[Edit, ...]:
        """Return the edits that remove it from a text that others have changed; none if it is no longer ours."""
        ...

    def is_blank(self, text: str) -> bool:
        """Return whether it is empty, so that a file that we made may be removed."""
        ...


def is_still_ours(value: Any, written: Any) -> bool:
    """Compare the addresses only: a client adds keys (approvals, for example) to a server's entry."""
    if isinstance(value, dict) and isinstance(written, dict):
        theirs = cast("dict[str, Any]", value)
        ours = cast("dict[str, Any]", written)
        return all(theirs.get(key) == ours.get(key) for key in _ADDRESS_KEYS)
    return bool(value == written)


def refused(path: object, why: str, hint: str) -> BrokerError:
    return BrokerError(Code.CONFLICT, f"{path}: {why}", f"{hint} Nothing was changed.")


def applied(text: str, edits: Sequence[Edit]) -> str:
    """Apply edits that are in order and do not overlap; all offsets are those of the given text."""
    pieces: list[str] = []
    reached = 0
    for edit in edits:
        pieces += [text[reached : edit.start], edit.text]
        reached = edit.end
    return "".join([*pieces, text[reached:]])


def newline_of(text: str) -> str:
    first = text.find("\n")
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"


def line_and_column(text: str, offset: int) -> str:
    before = text[:offset]
    return f"line {before.count(chr(10)) + 1}, column {offset - before.rfind(chr(10))}"
