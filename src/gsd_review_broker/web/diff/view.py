"""The change on a review's page: which files are shown at once, and which are loaded when they are opened."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from gsd_review_broker.domain.model import Review
from gsd_review_broker.domain.patch.reading import FilePatch
from gsd_review_broker.domain.words import Operation, Side
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.service.queries.review_page import ReviewFacts, ReviewPageQueries
from gsd_review_broker.web.addresses import DIFF, EVERYTHING, RENDERED, LineName, ReviewAddress
from gsd_review_broker.web.conversation import Thread
from gsd_review_broker.web.diff import rendered_markdown
from gsd_review_broker.web.diff.document import DiffDocument, ShownFile, ShownHunk
from gsd_review_broker.web.diff.documents import Documents, PreparedDocument, Warned
from gsd_review_broker.web.diff.highlighting import Pieces
from gsd_review_broker.web.diff.rendered_markdown import can_be_rendered, is_rendered
from gsd_review_broker.web.diff.rendering import Below, Part, View, file_table, part_of, part_with

# A file with more lines is loaded when it is opened.
LARGE_FILE_LINES = 400
# A change up to this size is shown completely; of a larger one only the beginning, so that the page opens quickly.
_SMALL_CHANGE_LINES = 1_500
_FIRST_LINES = 400
FILES_A_PAGE = 100
_RAW_CHARACTERS = 60_000
# How many lines around a hunk are offered, one after the other; then the whole file.
_STEPS = (20, 100)

_TOO_LARGE = Markup('<p class="note">This file is too large to be rendered: this is the diff.</p>')
_IN_PARTS = Markup(
    '<p class="note">Only what the diff shows is here. The lines between its parts did not change. A part that begins'
    " inside a list or a block of code can look different from the whole file.</p>"
)

ShowThread = Callable[[Thread], Markup]


@dataclass(frozen=True, kw_only=True, slots=True)
class FileBlock:
    file: ShownFile
    warnings: tuple[Warned, ...]
    # None: loaded when it is opened.
    table: Markup | None
    source: str
    link: str
    remarks: int

    @property
    def table_is_empty(self) -> bool:
        return self.file.lines == 0


@dataclass(frozen=True, kw_only=True, slots=True)
class DiffView:
    blocks: Sequence[FileBlock]
    added: int
    removed: int
    lines: int
    file_count: int
    next_first: int | None
    raw: str
    grave: int
    # Are there files that can be rendered, and is one of them?
    can_be_rendered: bool = False
    is_rendered: bool = False


class DiffViews:
    def __init__(self, pages: ReviewPageQueries) -> None:
        self._pages = pages
        self._documents = Documents(pages)

    async def prepared(self, facts: ReviewFacts, address: ReviewAddress) -> PreparedDocument:
        review = facts.review
        if address.patch is not None:
            patch = next((one for one in facts.counter_patches if one.id == address.patch), None)
            if patch is None:
                raise BrokerError(Code.NOT_FOUND, f"there is no counter-patch {address.patch}", "See the conversation.")
            return await self._documents.counter_patch(patch, whole=address.whole)
        if address.since is not None:
            if not 1 <= address.since <= review.revision:
                raise no_revision(review, address.since)
            return await self._documents.between(review.id, address.since, facts.content.number)
        return await self._documents.revision(review.id, facts.content.number)

    async def base(
        self, prepared: PreparedDocument, facts: ReviewFacts, address: ReviewAddress, index: int
    ) -> bytes | None:
        """Return the file before the change, if the address asks for lines that the diff does not show."""
        known = _patch_of(prepared, address, index)
        if not address.around or known is None:
            return None
        return await self._pages.base_of(facts.review, facts.content.number, known.old_name or b"")

    def view(
        self,
        prepared: PreparedDocument,
        address: ReviewAddress,
        threads: Sequence[Thread],
        show: ShowThread,
        form: Markup,
        base: bytes | None = None,
    ) -> DiffView:
        """Slow: call it in a thread."""
        document = prepared.document
        files = document.files if document else ()
        first = address.first_file
        shown = files[first : first + FILES_A_PAGE] if address.file is None else files[address.file : address.file + 1]
        room = float("inf") if document and document.lines <= _SMALL_CHANGE_LINES else _FIRST_LINES
        blocks: list[FileBlock] = []
        for file in shown:
            # A plan is read from its beginning to its end.
            most = _SMALL_CHANGE_LINES if is_rendered(file, address) else LARGE_FILE_LINES
            at_once = address.file is not None or _has_line(file, address.at) or file.lines <= min(most, room)
            room -= file.lines if at_once else 0
            table = self.table(prepared, file.index, address, threads, show, form, base) if at_once else None
            blocks.append(_block(prepared, file, address, threads, table))
        following = first + FILES_A_PAGE
        return DiffView(
            blocks=blocks,
            added=sum(file.added for file in files),
            removed=sum(file.removed for file in files),
            lines=document.lines if document else 0,
            file_count=len(files),
            next_first=following if address.file is None and following < len(files) else None,
            raw=prepared.raw[:_RAW_CHARACTERS],
            grave=sum(any(warned.is_grave for warned in warnings) for warnings in prepared.warnings),
            can_be_rendered=any(map(can_be_rendered, files)),
            is_rendered=any(is_rendered(file, address) for file in files),
        )

    def table(
        self,
        prepared: PreparedDocument,
        index: int,
        address: ReviewAddress,
        threads: Sequence[Thread],
        show: ShowThread,
        form: Markup,
        base: bytes | None = None,
    ) -> Markup:
        document = prepared.document
        if document is None or not 0 <= index < len(document.files):
            raise BrokerError(Code.NOT_FOUND, f"there is no file {index} in it", "Reload the page.")
        file = document.files[index]
        here = _by_place(file, threads)

        def below(side: str, number: int) -> Markup:
            blocks = [show(thread) for thread in here.get((side, number), ())]
            if address.at == str(LineName(index, side, number)):
                blocks.append(form)
            return Markup("").join(blocks)

        link = "" if address.patch is not None else _comment_link(address)
        more = _more(prepared, address, index)
        view = View(split=address.split, ignore_space=address.ignore_space, comment_link=link, more=more)
        whole = _whole(prepared, address, index)
        if not can_be_rendered(file):
            return self._diff(document, index, address, view, below, base) + whole
        turn = _turn(file, address)
        if not is_rendered(file, address):
            return turn + self._diff(document, index, address, view, below, base) + whole
        hunks = document.hunks(index) if base is None else self._hunks(document, index, address, base)[0]
        if rendered_markdown.is_too_large(hunks):
            return _TOO_LARGE + self._diff(document, index, address, view, below, base) + whole
        is_complete = file.operation == Operation.CREATE or address.around == EVERYTHING
        page = rendered_markdown.page(file, hunks, view, below, is_complete=is_complete)
        return turn + page + (Markup("") if is_complete else _IN_PARTS) + whole

    def _diff(
        self, document: DiffDocument, index: int, address: ReviewAddress, view: View, below: Below, base: bytes | None
    ) -> Markup:
        file = document.files[index]
        hunks, pieces = self._hunks(document, index, address, base)
        number = _part_number(address, index, hunks)
        part = part_of(hunks, pieces, number)
        if part is None:
            raise BrokerError(Code.NOT_FOUND, f"there is no part {number} of {file.path}", "Reload the page.")
        return file_table(file, part.hunks, part.pieces, view, below) + _rest(part, number, index, address)

    def _hunks(
        self, document: DiffDocument, index: int, address: ReviewAddress, base: bytes | None
    ) -> tuple[list[ShownHunk], list[list[Pieces]]]:
        if base is None:
            return self._documents.coloured(document, index)
        around = None if address.around == EVERYTHING else int(address.around)
        with_base = self._documents.expanded(document, index, base, around)
        if with_base is None:
            raise BrokerError(
                Code.NOT_FOUND,
                f"the hunks of {document.files[index].path} land at other lines than they show",
                "Only lines that the diff shows can be seen.",
            )
        return with_base


def _patch_of(prepared: PreparedDocument, address: ReviewAddress, index: int) -> FilePatch | None:
    """Return the file's part of the proposed diff, if there can be lines around its hunks."""
    document = prepared.document
    if document is None or address.patch is not None or address.since is not None:
        return None
    known = document.patch(index)
    is_change = known is not None and known[1].operation in {Operation.MODIFY, Operation.RENAME}
    return known[1] if known is not None and is_change and known[1].hunks else None


def _more(prepared: PreparedDocument, address: ReviewAddress, index: int) -> Markup:
    """Return the link in the heading of each hunk; empty if the file is shown whole or cannot be."""
    if _patch_of(prepared, address, index) is None or address.around == EVERYTHING:
        return Markup("")
    shown = int(address.around or 0)
    lines = next((step for step in _STEPS if step > shown), None)
    return _around_link(address, index, str(lines), f"Show {lines} lines around") if lines else Markup("")


def _whole(prepared: PreparedDocument, address: ReviewAddress, index: int) -> Markup:
    if _patch_of(prepared, address, index) is None or address.around == EVERYTHING:
        return Markup("")
    return Markup('<p class="note">{}</p>').format(_around_link(address, index, EVERYTHING, "Show the whole file"))


def _turn(file: ShownFile, address: ReviewAddress) -> Markup:
    """Return the link from the rendered text to the diff, and back."""
    form, text = (DIFF, "Show the diff") if is_rendered(file, address) else (RENDERED, "Show it rendered")
    other = replace(address, form=form, around="", part=None)
    return Markup(
        '<p class="note"><a class="load turn" href="{}#f{}" data-source="{}">{}</a> <kbd class="js">m</kbd></p>'
    ).format(other.link(), file.index, other.source_of(file.index), text)


def _around_link(address: ReviewAddress, index: int, around: str, text: str) -> Markup:
    wider = replace(address, around=around, part=None)
    return Markup('<a class="load around" href="{}" data-source="{}">{}</a>').format(
        wider.file_link(index), wider.source_of(index), text
    )


def no_revision(review: Review, number: int) -> BrokerError:
    there = "There is revision 1 alone." if review.revision == 1 else f"There are revisions 1 to {review.revision}."
    return BrokerError(Code.NOT_FOUND, f"review {review.id} has no revision {number}", there)


def _part_number(address: ReviewAddress, index: int, hunks: Sequence[ShownHunk]) -> int:
    if address.part is not None:
        return address.part
    line = LineName.of(address.at)
    return part_with(hunks, line.side, line.number) if line is not None and line.file == index else 0


def _rest(part: Part, number: int, index: int, address: ReviewAddress) -> Markup:
    if not part.left:
        return Markup("")
    link, source = address.file_link(index, number + 1), address.source_of(index, number + 1)
    return Markup('<p class="note"><a class="load rest" href="{}" data-source="{}">Show {} more lines</a></p>').format(
        link, source, part.left
    )


def _has_line(file: ShownFile, at: str) -> bool:
    line = LineName.of(at)
    return line is not None and line.file == file.index


def _comment_link(address: ReviewAddress) -> str:
    """Return the link that loads the page again with the form below the line, for browsers without scripts."""
    link = replace(address, at="").link(file=address.file, around=address.around)
    return str(Markup.escape(link + ("&" if "?" in link else "?") + "at="))


def _by_place(file: ShownFile, threads: Sequence[Thread]) -> dict[tuple[str, int], list[Thread]]:
    by_place: dict[tuple[str, int], list[Thread]] = {}
    for thread in threads:
        if thread.is_placed and thread.path in {file.path, file.old_path} and thread.line is not None:
            side = "o" if thread.side is Side.OLD else "n"
            by_place.setdefault((side, thread.line), []).append(thread)
    return by_place


def _block(
    prepared: PreparedDocument, file: ShownFile, address: ReviewAddress, threads: Sequence[Thread], table: Markup | None
) -> FileBlock:
    return FileBlock(
        file=file,
        warnings=prepared.warnings[file.index],
        table=table,
        source=address.source_of(file.index),
        link=address.file_link(file.index),
        remarks=sum(thread.is_placed and thread.path == file.path for thread in threads),
    )
