"""The lines that introduce a file or a hunk, and the names in them, as git reads them.

A line of a diff ends at a line feed and nowhere else. `strip` is what git calls the -p value: how many leading
components a name loses, one or none.
"""

import re
from dataclasses import dataclass, field

_ESCAPES = {
    b"a": b"\a",
    b"b": b"\b",
    b"t": b"\t",
    b"n": b"\n",
    b"v": b"\v",
    b"f": b"\f",
    b"r": b"\r",
    b'"': b'"',
    b"\\": b"\\",
}
_ESCAPE = re.compile(rb'\\([0-3][0-7]{2}|[abtnvfr"\\])')
# Possessive, so that a megabyte without a closing quote is scanned only once.
_QUOTED = re.compile(rb'"((?:[^"\\]|\\[abtnvfr"\\]|\\[0-3][0-7]{2})*+)"')
_SOMEHOW_QUOTED = re.compile(rb'"(?:[^"\\]|\\.)*+"')
_MODE = re.compile(rb" *([0-7]{1,10})(?=[ \t\r]|\Z)")
_SLASHES = re.compile(rb"/+")
_SEPARATOR = re.compile(rb"[ \t]")
_DATE = re.compile(rb"[\t ](?:\d\d)?\d\d-\d\d-\d\d(?: \d\d:\d\d:\d\d(?:\.\d+)?)?(?: [+-]\d{4}| [+-]\d\d:\d\d)?\Z")
_LONGEST_DATE = 64
_EPOCH = re.compile(rb"\t(1969-12-31|1970-01-01) ([0-2]\d):([0-5]\d):00(?:\.0+)? ([+-])([0-2]\d):?([0-5]\d)\Z")
_NOTHING = re.compile(rb"/dev/null(?:[ \t\r]|\Z)")


def readable_name(name: bytes) -> str:
    """Show a name that is not UTF-8 with escapes; nothing is guessed."""
    return name.decode("utf-8", "backslashreplace")


def unquoted_name(raw: bytes) -> tuple[bytes, bytes] | None:
    """Return the name inside the quotes and the rest after them; None if git does not know an escape."""
    match = _QUOTED.match(raw)
    if match is not None:
        return _ESCAPE.sub(_unescaped, match.group(1)), raw[match.end() :]
    if _SOMEHOW_QUOTED.match(raw) is None:
        # Git would look for the closing quote on the next lines. No honest diff needs that.
        raise UnreadableDiffError("a quoted name does not end on its line")
    return None


def _unescaped(match: re.Match[bytes]) -> bytes:
    escaped = match.group(1)
    return bytes([int(escaped, 8)]) if escaped.isdigit() else _ESCAPES[escaped]


def without_prefix(name: bytes, strip: int) -> bytes | None:
    """Read a run of slashes as one; but `a//x` leaves an absolute path."""
    if strip:
        _first, _slash, name = name.partition(b"/")
    return _SLASHES.sub(b"/", name) or None


def name_on_side(raw: bytes, strip: int) -> bytes | None:
    """Read the name after `--- ` or `+++ ` below a git header."""
    return _quoted(raw, strip) or without_prefix(re.split(rb"[\t\r]", raw, maxsplit=1)[0], strip)


def moved_name(raw: bytes) -> bytes | None:
    """Read the name after `rename from ` and its like: never prefixed, and a tab is part of it."""
    return _quoted(raw, 0) or without_prefix(raw.partition(b"\r")[0], 0)


def traditional_name(raw: bytes, strip: int, other: bytes | None = None) -> bytes | None:
    """Read the name after `--- ` or `+++ ` without a git header above.

    With the `other` side's name, the shorter of the two is used if the longer one begins with it: `x`, not `x.orig`.
    """
    quoted = _quoted(raw, strip)
    if quoted:
        return quoted
    name = without_prefix(_undated(raw), strip)
    if name is None or (other is not None and name.startswith(other)):
        return other
    return name


def _quoted(raw: bytes, strip: int) -> bytes | None:
    match = unquoted_name(raw) if raw.startswith(b'"') else None
    return without_prefix(match[0], strip) if match else None


def _undated(raw: bytes) -> bytes:
    tail = max(0, len(raw) - _LONGEST_DATE)
    date = _DATE.search(raw, tail)
    if date is None:
        return re.split(rb"[\t\r]", raw, maxsplit=1)[0]
    name = raw[: date.start()]
    return name if date.group().startswith(b"\t") else name.rstrip(b" ")


def is_dev_null(raw: bytes) -> bool:
    return _NOTHING.match(raw) is not None


def is_epoch(raw: bytes) -> bool:
    """Recognize GNU diff's mark for a missing file: the first second of 1970, in any time zone."""
    match = _EPOCH.search(raw, max(0, len(raw) - _LONGEST_DATE))
    if match is None:
        return False
    day, hour, minute, sign, zone_hour, zone_minute = match.groups()
    zone = (int(zone_hour) * 60 + int(zone_minute)) * (-1 if sign == b"-" else 1)
    midnight = 24 * 60 if day.startswith(b"1969") else 0
    return int(hour) * 60 + int(minute) - zone == midnight


def file_mode(raw: bytes) -> str:
    match = _MODE.match(raw)
    if match is None:
        raise UnreadableDiffError(f"not a file mode: {readable_name(raw[:40])!r}")
    return f"{int(match.group(1), 8):06o}"


def common_name(raw: bytes, strip: int) -> bytes | None:
    """Return the name in `diff --git a/NAME b/NAME` if both sides say the same; else None."""
    try:
        if raw.startswith(b'"'):
            return _both_quoted(raw, strip)
        if b'"' in raw:
            return _second_quoted(raw, strip)
    except UnreadableDiffError:
        return None
    return _repeated_name(raw, strip)


def _both_quoted(raw: bytes, strip: int) -> bytes | None:
    first = unquoted_name(raw)
    second = unquoted_name(rest) if first and (rest := first[1].lstrip(b" \t\r")).startswith(b'"') else None
    if not first or not second:
        return None
    one, other = _in_header(first[0], strip), _in_header(second[0], strip)
    return one if one == other else None


def _second_quoted(raw: bytes, strip: int) -> bytes | None:
    quote = raw.index(b'"')
    second = unquoted_name(raw[quote:])
    name = _in_header(second[0], strip) if second else None
    first = _in_header(raw[:quote], strip)
    return name if name and first and first.rstrip(b" \t") == name else None


def _in_header(name: bytes, strip: int) -> bytes | None:
    """Read a name as git reads the `diff --git` line itself: an absolute path has no name there."""
    if name.startswith(b"/"):
        return None
    return name.partition(b"/")[2] or None if strip else name or None


def _repeated_name(raw: bytes, strip: int) -> bytes | None:
    """Find the space between two equal names: at most one space gives names of equal length.

    The part between it and the next slash lies around the middle of the line, so a second one would contain that slash.
    """
    names = _in_header(raw, strip)
    if names is None:
        return None
    length, slash = len(names), -1
    for match in _SEPARATOR.finditer(names):
        middle = match.start()
        second = middle + 1
        if strip:
            if slash < second:
                slash = names.find(b"/", second)
            if slash < 0:
                return None
            if slash == second:
                continue
            second = slash + 1
        if length - second == middle and names.endswith(names[:middle]):
            return names[:middle] or None
    return None


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
        """Copy the line without its line feed; check with starts() first."""
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
_EXTENDED = (
    *(
        b"--- ",
        b"+++ ",
        b"old mode ",
        b"new mode ",
        b"deleted file mode ",
        b"new file mode ",
        b"copy from ",
        b"copy to ",
    ),
    *(b"rename old ", b"rename new ", b"rename from ", b"rename to ", b"similarity index ", b"dissimilarity index "),
    b"index ",
)
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
    """Read a git header. `carried` is the name on a bare `diff --git` line above, which git keeps for this file."""
    header = Header(start=lines.at, strip=strip, is_git=True, old_name=carried, new_name=carried)
    header.default_name = header.noted(common_name(lines.after(GIT), strip))
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


def _take(header: Header, lines: Scanner) -> bool:  # noqa: C901 - one case for each kind of line
    """Read one header line. Return False when the header is over."""
    prefix = next((known for known in _EXTENDED if lines.starts(known)), b"")
    rest = lines.after(prefix)
    match prefix:
        case b"--- ":
            header.old_name = _side(header, rest, header.old_name, absent=header.created)
        case b"+++ ":
            header.new_name = _side(header, rest, header.new_name, absent=header.deleted)
        case b"old mode ":
            header.old_mode = file_mode(rest)
        case b"new mode ":
            header.new_mode = file_mode(rest)
        case b"deleted file mode ":
            header.deleted, header.old_name, header.old_mode = True, header.default_name, file_mode(rest)
        case b"new file mode ":
            header.created, header.new_name, header.new_mode = True, header.default_name, file_mode(rest)
        case b"copy from ":
            header.copied, header.old_name = True, header.noted(moved_name(rest))
        case b"copy to ":
            header.copied, header.new_name = True, header.noted(moved_name(rest))
        case b"rename old " | b"rename from ":
            header.renamed, header.old_name = True, header.noted(moved_name(rest))
        case b"rename new " | b"rename to ":
            header.renamed, header.new_name = True, header.noted(moved_name(rest))
        case b"index ":
            _take_index(header, rest)
        case _:
            # The similarity of a renamed file says nothing that matters here.
            pass
    return bool(prefix)


def _side(header: Header, rest: bytes, known: bytes | None, *, absent: bool) -> bytes | None:
    if absent and known is None:
        if not is_dev_null(rest):
            raise header.wrong("a name instead of /dev/null")
        return None
    # Without `new file mode` above it, git treats /dev/null as a file like any other.
    if not is_dev_null(rest):
        header.noted(name_on_side(rest, 0))
    name = name_on_side(rest, header.strip)
    if absent or (known is not None and name != known):
        raise header.wrong("two names for one side")
    return name


def _take_index(header: Header, rest: bytes) -> None:
    """Read `index 1234..5678 100644`: the base's blob, and the mode of a file whose mode does not change."""
    base = _BASE.match(rest)
    header.base_id = base.group(1).decode("ascii") if base else None
    match = _INDEX.match(rest)
    if match is not None:
        header.old_mode = file_mode(match.group(1))


def plain_header(lines: Scanner, strip: int) -> Header | None:
    """Read `--- a/x` and `+++ b/x` without a git header above. Without a hunk below, they are only text."""
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
        if not is_dev_null(side):
            header.noted(traditional_name(side, 0))
    name = _plain_names(header, old, new)
    if name is None:
        raise header.wrong("no file name")
    header.old_name = header.new_name = name
    return header


def _guessed_strip(new: bytes, strip: int) -> int:
    """Strip nothing if the new name has no slash. Git then strips nothing up to the end of the diff."""
    if is_dev_null(new):
        return strip
    name = traditional_name(new, 0)
    return 0 if name is not None and b"/" not in name else strip


def _plain_names(header: Header, old: bytes, new: bytes) -> bytes | None:
    if is_dev_null(old):
        header.created = True
        return traditional_name(new, header.strip)
    first = traditional_name(old, header.strip)
    if is_dev_null(new):
        header.deleted = True
        return first
    header.created = is_epoch(old)
    header.deleted = not header.created and is_epoch(new)
    return traditional_name(new, header.strip, first)
