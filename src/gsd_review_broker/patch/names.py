"""File names as a diff writes them: prefixed, quoted like C strings, ended by a tab."""

import re

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
_ESCAPE = re.compile(rb"\\([0-3][0-7]{2}|.)", re.DOTALL)
_QUOTED = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_MODE = re.compile(rb"[0-7]{6}$")
_EPOCH = re.compile(rb"\t1(?:969-12-31|970-01-01) \d\d:\d\d:\d\d(?:\.0+)? [+-]\d{4}$")
NOTHING = b"/dev/null"


def text(name: bytes) -> str:
    """Names are bytes; those that are not UTF-8 are shown with escapes, never guessed."""
    return name.decode("utf-8", "backslashreplace")


def unquoted(raw: bytes) -> tuple[bytes, bytes] | None:
    """The name inside quotes and what stands after them; None if the quotes never end."""
    match = _QUOTED.match(raw)
    if match is None:
        return None
    name = _ESCAPE.sub(_unescaped, match.group(1))
    return name, raw[match.end() :]


def _unescaped(match: re.Match[bytes]) -> bytes:
    escaped = match.group(1)
    if escaped[:1].isdigit():
        return bytes([int(escaped, 8)])
    return _ESCAPES.get(escaped, b"\\" + escaped)


def without_first_component(name: bytes) -> bytes | None:
    """What `-p1` leaves; runs of slashes count as one."""
    _first, slash, rest = name.partition(b"/")
    rest = re.sub(rb"/+", b"/", rest.lstrip(b"/"))
    return rest or None if slash else None


def whole(raw: bytes) -> str | None:
    """A name without prefix, as after `rename from`."""
    if raw.startswith(b'"'):
        found = unquoted(raw)
        return text(found[0]) if found else None
    return text(re.sub(rb"/+", b"/", raw)) if raw else None


def raw_name(raw: bytes, *, to_tab: bool) -> bytes | None:
    """The name as written, prefix and all."""
    if raw.startswith(b'"'):
        found = unquoted(raw)
        return found[0] if found else None
    return raw.partition(b"\t")[0] if to_tab else raw


def stripped(raw: bytes, *, to_tab: bool) -> str | None:
    name = raw_name(raw, to_tab=to_tab)
    rest = without_first_component(name) if name else None
    return text(rest) if rest else None


def is_nothing(raw: bytes) -> bool:
    return raw.startswith(NOTHING) and raw[len(NOTHING) : len(NOTHING) + 1] in {b"", b"\t", b" ", b"\r"}


def is_epoch(raw: bytes) -> bool:
    """GNU diff's way to say that a file is not there: the date of 1970."""
    return _EPOCH.search(raw) is not None


def mode(raw: bytes) -> str | None:
    return raw[:6].decode("ascii") if _MODE.match(raw[:6]) else None


def common_name(raw: bytes) -> str | None:
    """The name in `diff --git a/NAME b/NAME`, when both sides say the same; else None."""
    pair = _quoted_pair(raw) if b'"' in raw else None
    if pair is not None:
        one, other = (without_first_component(name) for name in pair)
        return text(one) if one and one == other else None
    for middle in _spaces(raw):
        one, other = without_first_component(raw[:middle]), without_first_component(raw[middle + 1 :])
        if one and one == other:
            return text(one)
    return None


def _spaces(raw: bytes) -> list[int]:
    """Where the two names may part. Equal names leave only splits near the middle, and there are few."""
    return [match.start() for match in re.finditer(rb"[ \t]", raw)][:4096]


def _quoted_pair(raw: bytes) -> tuple[bytes, bytes] | None:
    """One or both names in quotes."""
    if raw.startswith(b'"'):
        found = unquoted(raw)
        if found is None:
            return None
        first, rest = found
        rest = rest.lstrip(b" ")
        second = unquoted(rest) if rest.startswith(b'"') else (rest, b"")
        return (first, second[0]) if second else None
    first, _, rest = raw.partition(b' "')
    second = unquoted(b'"' + rest)
    return (first, second[0]) if second else None
