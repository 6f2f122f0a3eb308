"""Reading a unified diff: what it touches, whether its paths are safe, how it is cut into pages.

Pure, over bytes, and a line ends at a line feed alone: a diff may carry any other character inside a line.
Whether a diff applies is git's word, not ours; that our reading agrees with git's is tested and fuzzed.
"""

from gsd_review_broker.domain.patch.anchors import LinePlace, ShownLines
from gsd_review_broker.domain.patch.applying import applied
from gsd_review_broker.domain.patch.clarity import unclear_sections
from gsd_review_broker.domain.patch.interdiff import ComparedFile, ShownLine, compared, interdiff, shown_interdiff
from gsd_review_broker.domain.patch.pages import Page, page_of
from gsd_review_broker.domain.patch.reading import FilePatch, Hunk, UnreadableDiffError, affected_files, read
from gsd_review_broker.domain.patch.safety import unsafe_paths

__all__ = [
    "ComparedFile",
    "FilePatch",
    "Hunk",
    "LinePlace",
    "Page",
    "ShownLine",
    "ShownLines",
    "UnreadableDiffError",
    "affected_files",
    "applied",
    "compared",
    "interdiff",
    "page_of",
    "read",
    "shown_interdiff",
    "unclear_sections",
    "unsafe_paths",
]
