"""Finds a review by its id or by a prefix of it."""

from gsd_review_broker.domain.model import Review, ReviewId
from gsd_review_broker.errors import BrokerError, Code, Next, NextStep
from gsd_review_broker.ports.store import Reader, Transaction

SHORTEST_PREFIX = 6
_MATCHES_SHOWN = 5


def find_review(reader: Reader, text: str) -> Review:
    """Refuses a prefix of no review or of several, and names the matches."""
    prefix = text.strip().lower()
    exact = reader.review(ReviewId(prefix)) if prefix.isascii() else None
    if exact is not None:
        return exact
    matches = reader.ids_with_prefix(prefix, _MATCHES_SHOWN + 1) if prefix and prefix.isascii() else []
    if len(prefix) < SHORTEST_PREFIX:
        raise BrokerError(
            Code.INVALID_ARGUMENT,
            f"review_id: {text!r} is shorter than {SHORTEST_PREFIX} characters",
            _shown(matches),
        )
    if not matches:
        raise _not_found(text)
    if len(matches) > 1:
        raise BrokerError(Code.INVALID_ARGUMENT, f"review_id: {text!r} names several", _shown(matches))
    return present(reader.review(matches[0]), text)


def lock_review(tx: Transaction, text: str) -> Review:
    """The same, with a lock for a change."""
    prefix = text.strip().lower()
    exact = tx.lock_review(ReviewId(prefix)) if prefix.isascii() else None
    if exact is not None:
        return exact
    return present(tx.lock_review(find_review(tx, text).id), text)


def present(review: Review | None, text: str) -> Review:
    """A review that existed a moment ago may have been archived since."""
    if review is None:
        raise _not_found(text)
    return review


def _not_found(text: str) -> BrokerError:
    return BrokerError(Code.NOT_FOUND, f"there is no review {text[:64]!r}", NextStep(Next.LIST_REVIEWS))


def _shown(matches: list[ReviewId]) -> str:
    if not matches:
        return "Give at least the first six characters of a review's id."
    more = " …" if len(matches) > _MATCHES_SHOWN else ""
    return f"It could be {', '.join(matches[:_MATCHES_SHOWN])}{more}: give more characters."
