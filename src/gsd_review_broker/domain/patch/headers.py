"""Read the lines that introduce a file or a hunk. A line of a diff ends at a line feed and nowhere else."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from gsd_review_broker.domain.patch import names


class UnreadableDiffError(ValueError):
    """Not a diff that git would read. The text says where."""


class Scanner:
    """A place in the diff, and the line that begins there."""

    def __init__(self, diff: bytes) -> None:
        self.diff = diff
        self.at = 0

    @property
    def more(self) -> bool:
        return self.at < len(self.diff)

    @property
    def line(self) -> bytes:
        """The line without its line feed. This copies the line: check with starts() first."""
        return self.diff[self.at : self._end()]

    @property
    def is_ended(self) -> bool:
        """Does a line feed end the line? Git accepts no header or hunk line without one."""
        return self._end() < len(self.diff)

    def starts(self, prefix: bytes) -> bool:
        return self.diff.startswith(prefix, self.at)

    def after(self, prefix: bytes) -> bytes:
        return self.diff[self.at + len(prefix) : self._end()]

    def followed_by(self, prefix: bytes) -> bool:
        """Does the next line start with this?"""
        return self.diff.startswith(prefix, self._end() + 1)

    def next(self) -> None:
        self.at = min(self._end() + 1, len(self.diff))

    def _end(self) -> int:
        line_feed = self.diff.find(b"\n", self.at)
        return len(self.diff) if line_feed < 0 else line_feed


GIT = b"diff --git "
_BASE = re.compile(rb"([0-9a-f]{7,64})\.\.")
_INDEX = re.compile(rb"[^. ]{1,64}\.\.[^ ]{0,64} (.*)\Z", re.DOTALL)


@dataclass(slots=True)
class Header:
    start: int
    strip: int
    is_git: bool
    default_name: bytes | None = None
    old_name: bytes | None = None
    new_name: bytes | None = None
    # The blob that the diff was made from, as the index line names it; often abbreviated.
    base_id: str | None = None
    old_mode: str | None = None
    new_mode: str | None = None
    created: bool = False
    deleted: bool = False
    renamed: bool = False
    copied: bool = False
    # A `diff --git` line with nothing that belongs to it. Git skips it.
    is_bare: bool = True
    # Every name as it is written.
    mentioned: list[bytes] = field(default_factory=list[bytes])

    def wrong(self, why: str) -> UnreadableDiffError:
        return UnreadableDiffError(f"{why} in the header at byte {self.start}")

    def noted(self, name: bytes | None) -> bytes | None:
        if name:
            self.mentioned.append(name)
        return name


def git_header(lines: Scanner, strip: int, carried: bytes | None) -> Header:
    """`carried` is the name on a bare `diff --git` line above, which git keeps for this file."""
    header = Header(start=lines.at, strip=strip, is_git=True, old_name=carried, new_name=carried)
    header.default_name = header.noted(names.common_name(lines.after(GIT), strip))
    lines.next()
    while lines.is_ended and _take(header, lines):
        header.is_bare = False
        if header.created + header.deleted + header.renamed + header.copied > 1:
            raise header.wrong("contradicting lines")
        lines.next()
    _settle(header)
    return header


def _settle(header: Header) -> None:
    if (header.created and header.old_name) or (header.deleted and header.new_name):
        raise header.wrong("a name for a side that is not there")
    if header.old_name is None and header.new_name is None:
        header.old_name = header.new_name = header.default_name
    if (header.new_name is None and not header.deleted) or (header.old_name is None and not header.created):
        raise header.wrong("no file name")


def _take(header: Header, lines: Scanner) -> bool:
    """Read one header line; False when the header is over."""
    for prefix, take in _EXTENDED.items():
        if lines.starts(prefix):
            take(header, lines.after(prefix))
            return True
    return False


def _old_side(header: Header, rest: bytes) -> None:
    header.old_name = _side(header, rest, header.old_name, absent=header.created)


def _new_side(header: Header, rest: bytes) -> None:
    header.new_name = _side(header, rest, header.new_name, absent=header.deleted)


def _side(header: Header, rest: bytes, known: bytes | None, *, absent: bool) -> bytes | None:
    if absent and known is None:
        if not names.is_nothing(rest):
            raise header.wrong("a name instead of /dev/null")
        return None
    # Without `new file mode` above it, git treats /dev/null as a file like any other.
    if not names.is_nothing(rest):
        header.noted(names.on_side(rest, 0))
    name = names.on_side(rest, header.strip)
    if absent or (known is not None and name != known):
        raise header.wrong("two names for one side")
    return name


def _old_mode(header: Header, rest: bytes) -> None:
    header.old_mode = names.mode(rest)


def _new_mode(header: Header, rest: bytes) -> None:
    header.new_mode = names.mode(rest)


def _created(header: Header, rest: bytes) -> None:
    header.created, header.new_name, header.new_mode = True, header.default_name, names.mode(rest)


def _deleted(header: Header, rest: bytes) -> None:
    header.deleted, header.old_name, header.old_mode = True, header.default_name, names.mode(rest)


def _renamed_from(header: Header, rest: bytes) -> None:
    header.renamed, header.old_name = True, header.noted(names.moved(rest))


def _renamed_to(header: Header, rest: bytes) -> None:
    header.renamed, header.new_name = True, header.noted(names.moved(rest))


def _copied_from(header: Header, rest: bytes) -> None:
    header.copied, header.old_name = True, header.noted(names.moved(rest))


def _copied_to(header: Header, rest: bytes) -> None:
    header.copied, header.new_name = True, header.noted(names.moved(rest))


def _index(header: Header, rest: bytes) -> None:
    """`index 1234..5678 100644`: the mode of a file whose mode does not change."""
    base = _BASE.match(rest)
    header.base_id = base.group(1).decode("ascii") if base else None
    match = _INDEX.match(rest)
    if match is not None:
        header.old_mode = names.mode(match.group(1))


def _nothing(_header: Header, _rest: bytes) -> None:
    pass


_EXTENDED: dict[bytes, Callable[[Header, bytes], None]] = {
    b"--- ": _old_side,
    b"+++ ": _new_side,
    b"old mode ": _old_mode,
    b"new mode ": _new_mode,
    b"deleted file mode ": _deleted,
    b"new file mode ": _created,
    b"copy from ": _copied_from,
    b"copy to ": _copied_to,
    b"rename old ": _renamed_from,
    b"rename new ": _renamed_to,
    b"rename from ": _renamed_from,
    b"rename to ": _renamed_to,
    b"similarity index ": _nothing,
    b"dissimilarity index ": _nothing,
    b"index ": _index,
}


def plain_header(lines: Scanner, strip: int) -> Header | None:
    """`--- a/x` and `+++ b/x` without a git header above. A hunk has to follow; otherwise it is only text."""
    start = lines.at
    old = lines.after(b"--- ")
    lines.next()
    new = lines.after(b"+++ ")
    lines.next()
    if not lines.starts(b"@@ -"):
        lines.at = start
        return None
    header = Header(start=start, strip=_guessed_strip(new, strip), is_git=False, is_bare=False)
    for side in (old, new):
        if not names.is_nothing(side):
            header.noted(names.traditional(side, 0))
    name = _plain_names(header, old, new)
    if name is None:
        raise header.wrong("no file name")
    header.old_name = header.new_name = name
    return header


def _guessed_strip(new: bytes, strip: int) -> int:
    """A new name without a slash has no prefix to strip. Git then strips none up to the end of the diff."""
    if names.is_nothing(new):
        return strip
    name = names.traditional(new, 0)
    return 0 if name is not None and b"/" not in name else strip


def _plain_names(header: Header, old: bytes, new: bytes) -> bytes | None:
    if names.is_nothing(old):
        header.created = True
        return names.traditional(new, header.strip)
    first = names.traditional(old, header.strip)
    if names.is_nothing(new):
        header.deleted = True
        return first
    header.created = names.is_epoch(old)
    header.deleted = not header.created and names.is_epoch(new)
    return names.traditional(new, header.strip, first)
