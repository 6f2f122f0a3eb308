"""Reading a unified diff: what it touches, whether its paths are safe, how it is cut into pages.

Pure, over bytes, and a line ends at a line feed alone: a diff may carry any other character inside a line.
Whether a diff applies is git's word, not ours; that our reading agrees with git's is tested and fuzzed.
"""

from gsd_review_broker.patch.anchors import Place, ShownLines
from gsd_review_broker.patch.interdiff import ComparedFile, ShownLine, compared, interdiff
from gsd_review_broker.patch.pages import Page, page_of
from gsd_review_broker.patch.reading import FilePatch, Hunk, UnreadableDiffError, affected_files, read
from gsd_review_broker.patch.safety import unsafe_paths

__all__ = [
    "ComparedFile",
    "FilePatch",
    "Hunk",
    "Page",
    "Place",
    "ShownLine",
    "ShownLines",
    "UnreadableDiffError",
    "affected_files",
    "compared",
    "interdiff",
    "page_of",
    "read",
    "unsafe_paths",
]
