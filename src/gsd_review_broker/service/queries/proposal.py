"""Reading a proposal: whole or in pages, one file of it, or the changes since an earlier revision."""

import asyncio
from dataclasses import dataclass

from gsd_review_broker.domain.model import CounterPatch, Review, ReviewId, Revision
from gsd_review_broker.domain.patch.interdiff import shown_interdiff
from gsd_review_broker.domain.patch.places import Page, page_of
from gsd_review_broker.domain.words import CounterPatchStatus
from gsd_review_broker.errors import BrokerError, Code, Next, NextStep
from gsd_review_broker.ports.store import Reader
from gsd_review_broker.service import validation
from gsd_review_broker.service.applies import Applicability
from gsd_review_broker.service.core import Core
from gsd_review_broker.service.wire.content import Proposal, ProposalPage, offset_results, proposal, proposal_page
from gsd_review_broker.service.wire.encoding import make_cursor, read_cursor

_INLINE_BYTES = 30_000
_DIFF, _COUNTER_PATCH = "diff", "counter_patch"


@dataclass(frozen=True, slots=True)
class _ProposalQuery:
    """The caller's arguments; cursors are bound to all of them."""

    review_id: ReviewId
    revision: int | None
    path: str | None
    since_revision: int | None

    def cursor(self, number: int, text: str, page: Page | None) -> str | None:
        """Return where this text of the revision goes on after the page."""
        if page is None or page.next_offset is None:
            return None
        return make_cursor(self, [number, text, page.next_offset])


class ProposalQueries:
    def __init__(self, core: Core, applies: Applicability) -> None:
        self._core = core
        self._applies = applies

    async def read(
        self,
        review_id: str,
        *,
        revision: int | None,
        path: str | None,
        since_revision: int | None,
        cursor: str | None,
        caller_id: str | None,
    ) -> Proposal | ProposalPage:
        review = await self._core.find(review_id)
        caller = validation.optional_identity("caller_id", caller_id, self._core.policy.limits)
        await self._core.saw(caller, review)
        query = _ProposalQuery(review.id, revision, path, since_revision)
        number, text, offset = _beginning(review, query, cursor)
        # By primary key, unless two revisions are compared.
        read = self._core.store.glance if since_revision is None else self._core.store.read
        content, patch, diff = await read(lambda reader: _load(reader, review, query, number))
        if cursor is not None:
            source = patch.diff if text == _COUNTER_PATCH and patch else diff
            page = await _page(source, offset, path if text == _DIFF else None)
            later = proposal_page(review, number, page, query.cursor(number, text, page))
            if since_revision is not None:
                later["since_revision"] = since_revision
            return later
        page = await _page(diff, 0, path if since_revision is None else None)
        patch_page = await _page(patch.diff if patch else None, 0, None)
        next_cursor, patch_cursor = query.cursor(number, _DIFF, page), query.cursor(number, _COUNTER_PATCH, patch_page)
        result = proposal(review, content, page, next_cursor, patch, patch_page, patch_cursor)
        if since_revision is not None:
            result["since_revision"] = since_revision
        offsets = await self._applies.offsets(review) if content.number == review.revision else ()
        if offsets:
            result["offsets"] = offset_results(offsets)
        return result


def _beginning(review: Review, query: _ProposalQuery, cursor: str | None) -> tuple[int, str, int]:
    """Return the revision, which of its texts, and where the page begins in it."""
    if cursor is None:
        return review.revision if query.revision is None else query.revision, _DIFF, 0
    match read_cursor(cursor, query):
        # Later pages are of the revision that was begun, even if there is a newer one by now.
        case [int(number), ("diff" | "counter_patch") as text, int(offset)] if offset >= 0:
            return number, text, offset
        case _:
            raise BrokerError(
                Code.INVALID_ARGUMENT, "cursor: this is not a cursor of get_proposal", "Begin without it."
            )


def _load(
    reader: Reader, review: Review, query: _ProposalQuery, number: int
) -> tuple[Revision, CounterPatch | None, bytes | None]:
    content = _revision(reader, review, number)
    diff = content.diff
    earlier = None if query.since_revision is None else _revision(reader, review, query.since_revision)
    if query.path is not None:
        _require_path(content, earlier, query.path)
    if earlier is not None:
        diff = shown_interdiff(earlier.diff, content.diff, path=query.path).encode("utf-8")
    # For the present revision, the open counter-patch; for an older one, the patch that was offered on it.
    if number == review.revision:
        is_open = review.counter_patch_status is CounterPatchStatus.PENDING
        return content, reader.open_counter_patch(review.id) if is_open else None, diff
    return content, reader.counter_patch_of(review.id, number), diff


def _revision(reader: Reader, review: Review, number: int) -> Revision:
    content = reader.revision(review.id, number, with_diff=True)
    if content is None:
        raise BrokerError(
            Code.NOT_FOUND,
            f"review {review.id} has no revision {number}",
            f"Its revisions are 1 to {review.revision}.",
        )
    return content


def _require_path(content: Revision, earlier: Revision | None, path: str) -> None:
    touched = (*content.affected_files, *(earlier.affected_files if earlier else ()))
    known = {name for file in touched for name in (file.path, file.old_path)}
    if path not in known:
        raise BrokerError(
            Code.NOT_FOUND,
            f"path: revision {content.number} does not touch {path!r}",
            NextStep(Next.LIST_FILES),
        )


async def _page(diff: bytes | None, offset: int, path: str | None) -> Page | None:
    if diff is None:
        return None
    if len(diff) <= _INLINE_BYTES:
        return page_of(diff, offset, path=path)
    return await asyncio.to_thread(page_of, diff, offset, path=path)
