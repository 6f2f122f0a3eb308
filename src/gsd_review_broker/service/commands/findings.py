"""Inline remarks: where they stand, when they are raised again, how they were resolved. None is ever lost."""

import asyncio
import secrets
from dataclasses import dataclass, replace

from gsd_review_broker.domain.identity import BROKER
from gsd_review_broker.domain.model import (
    Anchor,
    Disposition,
    Finding,
    Identity,
    Limits,
    Milliseconds,
    Review,
    Severity,
    Side,
)
from gsd_review_broker.domain.patch import LinePlace, ShownLines
from gsd_review_broker.domain.rules.discussion import same_finding
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.ports.store import Reader
from gsd_review_broker.service import validation
from gsd_review_broker.service.wire.arguments import FindingArgument


@dataclass(frozen=True, kw_only=True, slots=True)
class NewFinding:
    """A finding as the reviewer sends it."""

    title: str
    body: str
    severity: Severity
    path: str | None = None
    line_start: int | None = None
    line_end: int | None = None
    side: Side = Side.NEW
    suggestion: str | None = None
    confidence: float | None = None


_SEVERITIES = {
    "P0": Severity.CRITICAL,
    "P1": Severity.HIGH,
    "P2": Severity.MEDIUM,
    "P3": Severity.LOW,
    "blocker": Severity.CRITICAL,
    "nit": Severity.LOW,
}


def new_finding(argument: FindingArgument) -> NewFinding:
    return NewFinding(
        title=argument.title,
        body=argument.body,
        severity=_SEVERITIES.get(argument.severity) or Severity(argument.severity),
        path=argument.path,
        line_start=argument.line_start,
        line_end=argument.line_end,
        side=Side(argument.side),
        suggestion=argument.suggestion,
        confidence=argument.confidence,
    )


@dataclass(frozen=True, slots=True)
class Raised:
    """How a verdict's remarks change the review's findings."""

    changed: tuple[Finding, ...]
    open_count: int


@dataclass(frozen=True, slots=True)
class Remarks:
    """Remarks with their places, looked up before the transaction. The revision under a claim cannot change."""

    placed: tuple[tuple[NewFinding, LinePlace], ...]

    def raised(self, review: Review, reader: Reader, *, now: Milliseconds) -> Raised:
        """New remarks get an id. A remark that repeats an earlier finding raises that finding again."""
        if not self.placed:
            return Raised((), review.open_finding_count)
        known = reader.findings(review.id)
        by = review.claimed_by or BROKER
        changed: dict[str, Finding] = {}
        position = max((finding.position for finding in known), default=0)
        for remark, place in self.placed:
            free = [finding for finding in known if finding.id not in changed]
            same = same_finding(free, title=remark.title, place=place, round_=review.round)
            if same is None:
                position += 1
            finding = _again(same, remark, place) if same else _new(review, position, remark, place, by=by, now=now)
            changed[finding.id] = finding
        after = {finding.id: finding for finding in known} | changed
        return Raised(tuple(changed.values()), count_open(list(after.values())))


def count_open(findings: list[Finding]) -> int:
    return sum(finding.disposition is Disposition.OPEN for finding in findings)


def _new(
    review: Review, position: int, remark: NewFinding, place: LinePlace, *, by: Identity, now: Milliseconds
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
        severity=remark.severity,
        title=remark.title,
        body=remark.body,
        suggestion=remark.suggestion,
        confidence=remark.confidence,
        anchor=place.anchor,
        anchor_text=place.text,
        disposition=Disposition.OPEN,
        note=None,
        created_at=now,
    )


def _again(finding: Finding, remark: NewFinding, place: LinePlace) -> Finding:
    return replace(
        finding,
        times_raised=finding.times_raised + 1,
        severity=remark.severity,
        body=remark.body,
        suggestion=remark.suggestion,
        confidence=remark.confidence,
        line_start=place.line_start,
        line_end=place.line_end,
        side=place.side,
        anchor=place.anchor,
        anchor_text=place.text,
        disposition=Disposition.OPEN,
        note=None,
    )


def refuse_unreadable(limits: Limits, remarks: list[NewFinding]) -> None:
    if len(remarks) > limits.findings:
        raise BrokerError(
            Code.TOO_LARGE,
            f"findings: {len(remarks)} of them, and the limit is {limits.findings} a verdict",
            "Say the most important ones first.",
        )
    for index, remark in enumerate(remarks):
        _refuse_unreadable(f"findings.{index}", remark, limits.text, limits.intent)


async def placed(remarks: list[NewFinding], diff: bytes | None) -> Remarks:
    """Look the place of each remark up in the diff of the revision it is about."""
    if not remarks:
        return Remarks(())
    places = await asyncio.to_thread(_places, diff, remarks)
    return Remarks(tuple(zip(remarks, places, strict=True)))


def _refuse_unreadable(name: str, remark: NewFinding, text_limit: int, title_limit: int) -> None:
    validation.text(f"{name}.title", remark.title, title_limit)
    validation.text(f"{name}.body", remark.body, text_limit)
    validation.optional_text(f"{name}.suggestion", remark.suggestion, text_limit)
    validation.optional_text(f"{name}.path", remark.path, title_limit)
    if remark.confidence is not None:
        validation.between(f"{name}.confidence", remark.confidence, 0, 1)


def _places(diff: bytes | None, remarks: list[NewFinding]) -> list[LinePlace]:
    shown = ShownLines(diff)
    return [shown.place(remark.path, remark.line_start, remark.line_end, remark.side) for remark in remarks]


@dataclass(frozen=True, slots=True)
class Moved:
    """Where findings stand in the next revision."""

    places: dict[str, LinePlace]

    def applied_to(self, findings: list[Finding]) -> tuple[Finding, ...]:
        return tuple(
            replace(
                finding,
                path=place.path,
                line_start=place.line_start,
                line_end=place.line_end,
                anchor=place.anchor,
            )
            for finding in findings
            if (place := self.places.get(finding.id)) is not None and place.anchor is not Anchor.UNANCHORED
        )


async def moved_to(findings: list[Finding], diff: bytes | None) -> Moved:
    """Look every finding up in the next revision's diff, before the transaction that needs it."""
    if not findings:
        return Moved({})
    return await asyncio.to_thread(_found_again, findings, diff)


def _found_again(findings: list[Finding], diff: bytes | None) -> Moved:
    shown = ShownLines(diff)
    return Moved({finding.id: shown.find_again(_place(finding)) for finding in findings})


def _place(finding: Finding) -> LinePlace:
    return LinePlace(
        finding.path,
        finding.line_start,
        finding.line_end,
        finding.side,
        finding.anchor,
        finding.anchor_text,
    )
