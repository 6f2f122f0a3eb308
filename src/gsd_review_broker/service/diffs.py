"""Diffs as callers send them."""

import asyncio

from gsd_review_broker.domain import patch
from gsd_review_broker.domain.model import AffectedFile, Limits
from gsd_review_broker.errors import BrokerError, Code, Next, NextStep
from gsd_review_broker.service import validation

# Larger diffs are read in a thread, so that the event loop does not wait.
_READ_INLINE_BYTES = 64 * 1024


async def read_diff(name: str, diff: str | None, limits: Limits) -> tuple[bytes | None, tuple[AffectedFile, ...]]:
    """The diff's bytes and the files it touches. An empty diff is the same as none."""
    if diff is None or not diff.strip():
        return None, ()
    validation.optional_text(name, diff, limits.diff)
    content = validation.encoded(name, diff)
    if len(content) <= _READ_INLINE_BYTES:
        files = _read_safely(name, content, limits)
    else:
        files = await asyncio.to_thread(_read_safely, name, content, limits)
    if len(files) > limits.diff_files:
        raise BrokerError(
            Code.TOO_LARGE,
            f"{name}: it touches {len(files)} files, and the limit is {limits.diff_files} files",
            NextStep(Next.SPLIT),
        )
    return content, files


def _read_safely(name: str, diff: bytes, limits: Limits) -> tuple[AffectedFile, ...]:
    """The files it touches; none if it cannot be read (claiming it will say why). Unsafe paths are refused."""
    try:
        parsed = patch.read(diff)
    except patch.UnreadableDiffError:
        parsed = None
    unsafe = patch.unsafe_paths(diff, parsed)
    if unsafe:
        raise BrokerError(
            Code.DIFF_INVALID,
            f"{name}: it names paths outside the tree or inside .git: {', '.join(map(repr, unsafe[:5]))}",
            "A change touches files of the work tree only; make the diff again with git diff.",
        )
    unclear = patch.unclear_sections(parsed) if parsed else None
    if unclear:
        raise BrokerError(Code.DIFF_INVALID, f"{name}: {unclear}", "Make the diff again with git diff.")
    unpacked = sum(file.unpacked_bytes for file in parsed or ())
    if unpacked > limits.unpacked:
        raise BrokerError(
            Code.TOO_LARGE,
            f"{name}: its binary files unpack to {unpacked} bytes, and the limit is {limits.unpacked} bytes",
            "Leave large binary files out of the change, or raise the limit in the configuration.",
        )
    return patch.affected_files(parsed) if parsed else ()
