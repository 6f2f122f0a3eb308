"""Findings: where they stand, when they are raised again, how they were resolved. None is ever lost."""

import asyncio
import secrets
from dataclasses import dataclass, replace

from gsd_review_broker.domain.model import Finding, Identity, Limits, Milliseconds, Review
from gsd_review_broker.domain.patch.places import LinePlace, ShownLines
from gsd_review_broker.domain.rules.discussion import same_finding
from gsd_review_broker.domain.text import BROKER
from gsd_review_broker.domain.words import Anchor, Disposition
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.ports.store import Reader
from gsd_review_broker.service import validation
from gsd_review_broker.service.validation import FindingArgument


@dataclass(frozen=True, slots=True)
class PlacedFindings:
    """New findings with their places, looked up before the transaction. The revision under a claim cannot change."""

    placed: tuple[tuple[FindingArgument, LinePlace], ...]

    def raised(self, review: Review, reader: Reader, *, now: Milliseconds) -> tuple[tuple[Finding, ...], int]:
        """Return the findings that change, and how many are open then.

        A new finding gets an id. One that repeats an earlier finding raises that finding again.
        """
        if not self.placed:
            return (), review.open_finding_count
        known = reader.findings(review.id)
        by = review.claimed_by or BROKER
        changed: dict[str, Finding] = {}
        position = max((finding.position for finding in known), default=0)
        for new, place in self.placed:
            free = [finding for finding in known if finding.id not in changed]
            same = same_finding(free, title=new.title, place=place, round_=review.round)
            if same is None:
                position += 1
            finding = _again(same, new, place) if same else _new(review, position, new, place, by=by, now=now)
            changed[finding.id] = finding
        after = {finding.id: finding for finding in known} | changed
        return tuple(changed.values()), count_open(list(after.values()))


def count_open(findings: list[Finding]) -> int:
    return sum(finding.disposition is Disposition.OPEN for finding in findings)


def _new(
    review: Review, position: int, new: FindingArgument, place: LinePlace, *, by: Identity, now: Milliseconds
) -> Finding:
    return Finding(
        id=f"f{secrets.token_hex(6)}",
        review_id=review.id,
        position=position,
        raised_by=by,
        raised_in_round=review.round,
        raised_at_revision=review.revision,
        times_raised=1,
        path=place.path,
        line_start=place.line_start,
        line_end=place.line_end,
        side=place.side,
        severity=new.severity,
        title=new.title,
        body=new.body,
        suggestion=new.suggestion,
        confidence=new.confidence,
        anchor=place.anchor,
        anchor_text=place.text,
        disposition=Disposition.OPEN,
        note=None,
        created_at=now,
    )


def _again(finding: Finding, new: FindingArgument, place: LinePlace) -> Finding:
    return replace(
        finding,
        times_raised=finding.times_raised + 1,
        severity=new.severity,
        body=new.body,
        suggestion=new.suggestion,
        confidence=new.confidence,
        line_start=place.line_start,
        line_end=place.line_end,
        side=place.side,
        anchor=place.anchor,
        anchor_text=place.text,
        disposition=Disposition.OPEN,
        note=None,
    )


def refuse_unreadable(limits: Limits, new: list[FindingArgument]) -> None:
    if len(new) > limits.findings:
        raise BrokerError(
            Code.TOO_LARGE,
            f"findings: {len(new)} of them, and the limit is {limits.findings} a verdict",
            "Say the most important ones first.",
        )
    for index, one in enumerate(new):
        _refuse_unreadable(f"findings.{index}", one, limits.text, limits.intent)


async def placed(new: list[FindingArgument], diff: bytes | None) -> PlacedFindings:
    """Look the place of each new finding up in the diff of the revision it is about."""
    if not new:
        return PlacedFindings(())
    places = await asyncio.to_thread(_places, diff, new)
    return PlacedFindings(tuple(zip(new, places, strict=True)))


def _refuse_unreadable(name: str, new: FindingArgument, text_limit: int, title_limit: int) -> None:
    validation.text(f"{name}.title", new.title, title_limit)
    validation.text(f"{name}.body", new.body, text_limit)
    validation.optional_text(f"{name}.suggestion", new.suggestion, text_limit)
    validation.optional_text(f"{name}.path", new.path, title_limit)
    if new.confidence is not None:
        validation.between(f"{name}.confidence", new.confidence, 0, 1)


def _places(diff: bytes | None, new: list[FindingArgument]) -> list[LinePlace]:
    shown = ShownLines(diff)
    return [shown.place(one.path, one.line_start, one.line_end, one.side) for one in new]


async def places_in(findings: list[Finding], diff: bytes | None) -> dict[str, LinePlace]:
    """Look every finding up in the next revision's diff, before the transaction that needs it."""
    return await asyncio.to_thread(_places_again, findings, diff) if findings else {}


def moved(findings: list[Finding], places: dict[str, LinePlace]) -> tuple[Finding, ...]:
    return tuple(
        replace(finding, path=place.path, line_start=place.line_start, line_end=place.line_end, anchor=place.anchor)
        for finding in findings
        if (place := places.get(finding.id)) is not None and place.anchor is not Anchor.UNANCHORED
    )


def _places_again(findings: list[Finding], diff: bytes | None) -> dict[str, LinePlace]:
    shown = ShownLines(diff)
    return {finding.id: shown.find_again(_place(finding)) for finding in findings}


def _place(finding: Finding) -> LinePlace:
    return LinePlace(
        finding.path,
        finding.line_start,
        finding.line_end,
        finding.side,
        finding.anchor,
        finding.anchor_text,
    )
