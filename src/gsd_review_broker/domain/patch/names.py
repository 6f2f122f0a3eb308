"""File names as a diff writes them: prefixed, quoted like C strings, ended by a tab or a date.

`strip` is what git calls the -p value: how many leading components a name loses, one or none.
"""

import re

from gsd_review_broker.domain.patch.headers import UnreadableDiffError

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


def text(name: bytes) -> str:
    """Names are bytes; those that are not UTF-8 are shown with escapes, never guessed."""
    return name.decode("utf-8", "backslashreplace")


def unquoted(raw: bytes) -> tuple[bytes, bytes] | None:
    """The name inside the quotes and the rest after them; None if git does not know an escape."""
    match = _QUOTED.match(raw)
    if match is not None:
        return _ESCAPE.sub(_unescaped, match.group(1)), raw[match.end() :]
    if _SOMEHOW_QUOTED.match(raw) is None:
        # Git would look for the closing quote on the next lines. Nobody writes that in good faith.
        raise UnreadableDiffError("a quoted name does not end on its line")
    return None


def _unescaped(match: re.Match[bytes]) -> bytes:
    escaped = match.group(1)
    return bytes([int(escaped, 8)]) if escaped.isdigit() else _ESCAPES[escaped]


def without_prefix(name: bytes, strip: int) -> bytes | None:
    """Runs of slashes count as one, but `a//x` leaves an absolute path."""
    if strip:
        _first, _slash, name = name.partition(b"/")
    return _SLASHES.sub(b"/", name) or None


def on_side(raw: bytes, strip: int) -> bytes | None:
    """The name after `--- ` or `+++ ` below a git header."""
    return _quoted(raw, strip) or without_prefix(re.split(rb"[\t\r]", raw, maxsplit=1)[0], strip)


def moved(raw: bytes) -> bytes | None:
    """The name after `rename from ` and its like: never prefixed, and a tab is part of it."""
    return _quoted(raw, 0) or without_prefix(raw.partition(b"\r")[0], 0)


def traditional(raw: bytes, strip: int, other: bytes | None = None) -> bytes | None:
    """The name after `--- ` or `+++ ` where there is no git header above.

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
    match = unquoted(raw) if raw.startswith(b'"') else None
    return without_prefix(match[0], strip) if match else None


def _undated(raw: bytes) -> bytes:
    tail = max(0, len(raw) - _LONGEST_DATE)
    date = _DATE.search(raw, tail)
    if date is None:
        return re.split(rb"[\t\r]", raw, maxsplit=1)[0]
    name = raw[: date.start()]
    return name if date.group().startswith(b"\t") else name.rstrip(b" ")


def is_nothing(raw: bytes) -> bool:
    return _NOTHING.match(raw) is not None


def is_epoch(raw: bytes) -> bool:
    """GNU diff's mark for a file that does not exist: the first second of 1970, in any time zone."""
    match = _EPOCH.search(raw, max(0, len(raw) - _LONGEST_DATE))
    if match is None:
        return False
    day, hour, minute, sign, zone_hour, zone_minute = match.groups()
    zone = (int(zone_hour) * 60 + int(zone_minute)) * (-1 if sign == b"-" else 1)
    midnight = 24 * 60 if day.startswith(b"1969") else 0
    return int(hour) * 60 + int(minute) - zone == midnight


def mode(raw: bytes) -> str:
    match = _MODE.match(raw)
    if match is None:
        raise UnreadableDiffError(f"not a file mode: {text(raw[:40])!r}")
    return f"{int(match.group(1), 8):06o}"


def common_name(raw: bytes, strip: int) -> bytes | None:
    """The name in `diff --git a/NAME b/NAME`, when both sides say the same; else None."""
    try:
        if raw.startswith(b'"'):
            return _both_quoted(raw, strip)
        if b'"' in raw:
            return _second_quoted(raw, strip)
    except UnreadableDiffError:
        return None
    return _repeated_name(raw, strip)


def _both_quoted(raw: bytes, strip: int) -> bytes | None:
    first = unquoted(raw)
    second = unquoted(rest) if first and (rest := first[1].lstrip(b" \t\r")).startswith(b'"') else None
    if not first or not second:
        return None
    one, other = _in_header(first[0], strip), _in_header(second[0], strip)
    return one if one == other else None


def _second_quoted(raw: bytes, strip: int) -> bytes | None:
    quote = raw.index(b'"')
    second = unquoted(raw[quote:])
    name = _in_header(second[0], strip) if second else None
    first = _in_header(raw[:quote], strip)
    return name if name and first and first.rstrip(b" \t") == name else None


def _in_header(name: bytes, strip: int) -> bytes | None:
    """Reads a name as git reads the `diff --git` line itself: an absolute path has no name there."""
    if name.startswith(b"/"):
        return None
    return name.partition(b"/")[2] or None if strip else name or None


def _repeated_name(raw: bytes, strip: int) -> bytes | None:
    """Any space may separate the two names, but at most one gives names of equal length.

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
