"""The audit: what proves a database whole.

`check` is what the tests after a fault run and `tandem audit verify` share (invariants I2 to I6). It reads everything
as streams, in the order of the chain and then review by review, so that it needs no more memory for a million reviews
than for ten.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from gsd_review_broker.domain.audit.chain import FIRST_HASH, Gap, canonical, chained, check_chain, recomputed, seal
from gsd_review_broker.domain.audit.replay import CONTENTS, Stored, check_reviews
from gsd_review_broker.domain.model import Event
from gsd_review_broker.domain.tally import Totals

__all__ = [
    "CONTENTS",
    "FIRST_HASH",
    "Gap",
    "Stored",
    "canonical",
    "chained",
    "check",
    "check_chain",
    "check_reviews",
    "recomputed",
    "seal",
]


def check(
    chain: Iterable[Event],
    *,
    gaps: Iterable[Gap],
    head: tuple[int, str],
    by_review: Iterable[Event],
    stored: Iterable[Stored],
    totals: dict[str, Totals] | None,
    with_archives: bool = False,
) -> list[str]:
    """What is wrong, in words that name the first bad event; nothing wrong is an empty list.

    `by_review` are the same events review by review, `stored` the reviews in the same order of ids. Without `totals`
    the statistics are not compared: they count archived reviews too. With its archives the chain has no gaps."""
    problems = list(check_chain(chain, gaps=list(gaps), head=head, with_archives=with_archives))
    if problems:
        return problems
    counted: dict[str, Totals] = defaultdict(Totals)
    problems += check_reviews(by_review, stored, counted)
    if totals is not None:
        problems += _compare_totals(counted, totals)
    return problems


def _compare_totals(counted: dict[str, Totals], stored: dict[str, Totals]) -> Iterator[str]:
    for scope in sorted(counted.keys() | stored.keys()):
        where = f"project {scope}" if scope else "all projects"
        told, kept = counted.get(scope) or Totals(), stored.get(scope) or Totals()
        for name, key in sorted(told.counts.keys() | kept.counts.keys()):
            said, found = told.counts.get((name, key), 0), kept.counts.get((name, key), 0)
            if said != found:
                yield f"statistics of {where}: {name} {key} is {found}, the events say {said}"
        for name in sorted(told.spreads.keys() | kept.spreads.keys()):
            if told.spreads.get(name) != kept.spreads.get(name):
                yield f"statistics of {where}: {name} is not what the events say"
