"""git's index as a file: version 2, entries only.

A check needs the few paths that a diff touches, not the whole of HEAD. Writing them here takes microseconds, where
`git read-tree` and `git ls-files` are two processes that also grow with the repository.
"""

import hashlib
import struct
from collections.abc import Mapping
from typing import NamedTuple

_HEADER = struct.Struct(">4sII")
_MODE = struct.Struct(">24xI12x")  # the times, device and owner of a file in the work tree stay empty
_FLAGS = struct.Struct(">H")
_LONGEST_NAME, _STAGES, _EXTENDED = 0xFFF, 0x3000, 0x4000
_ALIGNMENT = 8


class Entry(NamedTuple):
    """A path's mode and object, as a tree or an index holds them."""

    mode: str
    object_id: str


def written(entries: Mapping[bytes, Entry], object_format: str) -> bytes:
    parts = [_HEADER.pack(b"DIRC", 2, len(entries))]
    for path, (mode, object_id) in sorted(entries.items()):
        flags = _FLAGS.pack(min(len(path), _LONGEST_NAME))
        entry = _MODE.pack(int(mode, 8)) + bytes.fromhex(object_id) + flags + path
        parts.append(entry + b"\0" * (_ALIGNMENT - len(entry) % _ALIGNMENT))
    content = b"".join(parts)
    return content + hashlib.new(object_format, content, usedforsecurity=False).digest()


def read(content: bytes, object_format: str) -> dict[bytes, Entry]:
    """Raises ValueError for what git does not write here: another version, or an unmerged path."""
    size = hashlib.new(object_format, usedforsecurity=False).digest_size
    signature, version, count = _HEADER.unpack_from(content)
    if signature != b"DIRC" or version != 2:  # noqa: PLR2004 - the only version that git writes unasked
        raise ValueError(f"an index of version {version}")
    entries: dict[bytes, Entry] = {}
    start = _HEADER.size
    for _ in range(count):
        (mode,) = _MODE.unpack_from(content, start)
        object_id = content[start + _MODE.size : start + _MODE.size + size]
        (flags,) = _FLAGS.unpack_from(content, start + _MODE.size + size)
        if flags & (_STAGES | _EXTENDED):
            raise ValueError("an index with an unmerged path")
        name = start + _MODE.size + size + _FLAGS.size
        end = content.index(b"\0", name)
        entries[content[name:end]] = Entry(f"{mode:06o}", object_id.hex())
        start += (end - start) // _ALIGNMENT * _ALIGNMENT + _ALIGNMENT
    return entries
