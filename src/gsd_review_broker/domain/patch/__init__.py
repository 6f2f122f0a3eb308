"""Reading a unified diff: what it touches, whether its paths are safe, how it is cut into pages.

All functions are pure and work on bytes. Only a line feed ends a line: a diff may carry any other character inside one.
Git decides whether a diff applies. Tests and fuzzing check that this package reads a diff as git does.
"""

from gsd_review_broker.domain.patch.interdiff import ComparedFile, compared, interdiff, shown_interdiff
from gsd_review_broker.domain.patch.places import LinePlace, Page, ShownLines, page_of
from gsd_review_broker.domain.patch.reading import FilePatch, UnreadableDiffError, affected_files, applied, read
from gsd_review_broker.domain.patch.safety import unclear_sections, unsafe_paths

__all__ = [
    "ComparedFile",
    "FilePatch",
    "LinePlace",
    "Page",
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
