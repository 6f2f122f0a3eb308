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
    """What is wrong, as sentences that name the first bad event. An empty list means that nothing is wrong.

    `by_review` holds the same events grouped by review; `stored` holds the reviews in the same order of ids. Without
    `totals` the statistics are not compared, because they count archived reviews too. With its archives the chain has
    no gaps.
    """
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
        replayed, recorded = counted.get(scope) or Totals(), stored.get(scope) or Totals()
        for name, key in sorted(replayed.counts.keys() | recorded.counts.keys()):
            expected, actual = replayed.counts.get((name, key), 0), recorded.counts.get((name, key), 0)
            if expected != actual:
                yield f"statistics of {where}: {name} {key} is {actual}, the events say {expected}"
        for name in sorted(replayed.spreads.keys() | recorded.spreads.keys()):
            if replayed.spreads.get(name) != recorded.spreads.get(name):
                yield f"statistics of {where}: {name} is not what the events say"
