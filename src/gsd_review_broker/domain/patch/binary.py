"""Git's binary patches: where they end, and how large they get when they are unpacked."""

import base64
import re
import zlib

from gsd_review_broker.domain.patch.scanner import Scanner, UnreadableDiffError

_START = b"GIT binary patch\n"
_BLOCK = re.compile(rb"(literal|delta) (\d{1,18})\n")
_DATA = re.compile(rb"(?:[A-Za-z](?:[0-9A-Za-z!#$%&()*+;<=>?@^_`{|}~-]{5}){1,13}\n)++(?=\n)")
_SIZES = 24  # bytes: two numbers of seven bits a byte, the first thing in a delta


def starts(lines: Scanner) -> bool:
    return lines.starts(_START)


def is_summary(lines: Scanner) -> bool:
    """`Binary files a/x and b/x differ`: git says no more than that."""
    if not lines.starts(b"Binary files ") and not lines.starts(b"Files "):
        return False
    return lines.is_ended and lines.line.endswith(b" differ")


def unpacked_bytes(lines: Scanner) -> int:
    """Skip the forward block and, if there is one, the reverse block. Returns the size of the larger result."""
    lines.next()
    size = _block(lines)
    if size is None:
        raise UnreadableDiffError(f"a binary patch without data at byte {lines.at}")
    return max(size, _block(lines) or 0)


def _block(lines: Scanner) -> int | None:
    if not lines.starts(b"literal ") and not lines.starts(b"delta "):
        return None
    start = _BLOCK.match(lines.diff, lines.at)
    data = _DATA.match(lines.diff, start.end()) if start else None
    if start is None or data is None:
        raise UnreadableDiffError(f"a broken binary patch at byte {lines.at}")
    lines.at = data.end() + 1
    # Git allocates the size that the line states and refuses data of any other size, so that size is the upper bound.
    size = int(start.group(2))
    return size if start.group(1) == b"literal" else max(size, _result_of_delta(data.group()))


def _result_of_delta(data: bytes) -> int:
    """A delta states the size of its result in its first bytes; only those are unpacked."""
    try:
        packed = b"".join(_decoded(line) for line in data[:256].split(b"\n")[:3])
        head = zlib.decompressobj().decompress(packed, _SIZES)
    except (ValueError, zlib.error) as error:
        raise UnreadableDiffError("a delta that cannot be unpacked") from error
    _source, rest = _number(head)
    result, _rest = _number(rest)
    return result


def _decoded(line: bytes) -> bytes:
    if not line:
        return b""
    length = line[0] - 64 if line[:1].isupper() else line[0] - 70
    return base64.b85decode(line[1:])[:length]


def _number(data: bytes) -> tuple[int, bytes]:
    value = 0
    for place, byte in enumerate(data):
        value |= (byte & 0x7F) << 7 * place
        if not byte & 0x80:
            return value, data[place + 1 :]
    return value, b""
