"""What keeps our files in a repository out of git: a block of lines in the repository's own exclude file.

The block stands at the top. So the rest of the file keeps every byte, and a later line of the user's overrules ours.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from gsd_review_broker.git.discovery import exclude_file
from gsd_review_broker.integrations import files
from gsd_review_broker.integrations.planning import FileChange
from gsd_review_broker.integrations.receipts import Receipt

_BEGIN = "# These files were written by `tandem install`; `tandem uninstall` removes the lines."
_BEGIN_OF_OURS = f"{_BEGIN} (And this file.)"
_END = "# End of the lines by `tandem install`."


def place(root: Path | None) -> Path | None:
    """The exclude file of a project; None if there is none that we may write."""
    return exclude_file(root) if root else None


def pattern(path: Path, root: Path) -> str:
    return f"/{path.relative_to(root).as_posix()}"


def plan(receipt: Receipt, others: Iterable[Receipt]) -> list[FileChange]:
    """The block with the lines of this receipt and of all others that share its file; nothing if it says so already."""
    if receipt.exclude is None:
        return []
    same = [other for other in others if other.exclude == receipt.exclude and not _is_same(other, receipt)]
    wanted = sorted({line for one in (receipt, *same) for line in one.excluded})
    snapshot = files.read(Path(receipt.exclude))
    after = _with_block(snapshot.content, wanted)
    return [] if after == snapshot.content else [FileChange(snapshot=snapshot, after=after, record=None)]


def _is_same(one: Receipt, other: Receipt) -> bool:
    return (one.client, one.root) == (other.client, other.root)


def _with_block(content: bytes | None, lines: list[str]) -> bytes | None:
    before, is_ours, rest = _split(content or b"")
    is_ours = is_ours or content is None
    if not lines:
        return before + rest if before + rest or not is_ours else None
    block = [_BEGIN_OF_OURS if is_ours else _BEGIN, *lines, _END]
    return before + "".join(f"{line}\n" for line in block).encode() + rest


def _split(content: bytes) -> tuple[bytes, bool, bytes]:
    """What stands before our block, whether we made the file, and what stands after the block."""
    lines = content.splitlines(keepends=True)
    words = [os.fsdecode(line).rstrip("\r\n") for line in lines]
    begin = next((at for at, word in enumerate(words) if word in {_BEGIN, _BEGIN_OF_OURS}), None)
    if begin is None or _END not in words[begin:]:
        return b"", False, content
    end = words.index(_END, begin)
    return b"".join(lines[:begin]), words[begin] == _BEGIN_OF_OURS, b"".join(lines[end + 1 :])
