"""Is a remark a new finding, or one that was raised before?"""

import re
from collections.abc import Sequence

from gsd_review_broker.domain.model import Finding
from gsd_review_broker.domain.patch import LinePlace
from gsd_review_broker.domain.words import Anchor


def same_finding(findings: Sequence[Finding], *, title: str, place: LinePlace, round_: int) -> Finding | None:
    """The earlier finding that a remark repeats.

    It has the same title in the same file and is about the same text or line; or it is from an earlier round, about
    lines that have changed since. In doubt the remark is a new finding, so that none is lost.
    """
    alike = [f for f in findings if _sameness(f.path, f.title) == _sameness(place.path, title)]
    exact = [f for f in alike if (f.anchor_text, f.line_start) == (place.text, place.line_start)]
    about_the_same = exact or [f for f in alike if f.anchor_text is not None and f.anchor_text == place.text]
    changed_since = [f for f in alike if f.raised_in_round < round_ and f.anchor is Anchor.OUTDATED]
    return next(iter([*about_the_same, *changed_since]), None)


def _sameness(path: str | None, title: str) -> tuple[str | None, str]:
    return path, re.sub(r"\W+", " ", title).strip().casefold()
