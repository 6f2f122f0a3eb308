"""Which files can be shown rendered, and which are shown so unless somebody asks for something else."""

from gsd_review_broker.domain.words import Operation
from gsd_review_broker.web.addresses import RENDERED, ReviewAddress
from gsd_review_broker.web.diff.document import ShownFile

_ENDINGS = (".md", ".markdown")
_PLANNING = ".planning/"
_REGULAR = {None, "100644", "100755"}


def can_be_rendered(file: ShownFile) -> bool:
    """A Markdown file with a new side. A symbolic link's content is the path of its target, whatever its name."""
    is_text = not file.binary and file.new_mode in _REGULAR and file.operation != Operation.DELETE
    return is_text and file.lines > 0 and file.path.lower().endswith(_ENDINGS)


def is_rendered(file: ShownFile, address: ReviewAddress) -> bool:
    """A plan is prose. In a comparison people look for what differs, so there the diff comes first."""
    if not can_be_rendered(file) or address.form:
        return can_be_rendered(file) and address.form == RENDERED
    is_comparison = address.since is not None or address.patch is not None
    return not is_comparison and (address.is_plan or f"/{file.path}".find(f"/{_PLANNING}") >= 0)
