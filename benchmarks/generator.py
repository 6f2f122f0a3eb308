"""Makes a database of any number of reviews in minutes: complete stories by the real rules, repeated.

The rules act out a few stories once (approved, discussed, rejected, withdrawn, still open). Each generated review is
one of them with its own id, times and place in the chain. Events are hashed and statistics counted as in the broker, so
that `tandem audit verify` accepts the result.
"""

import itertools
import json
import random
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.support.policies import review_policy

from gsd_review_broker.domain.audit import FIRST_HASH, canonical, chained
from gsd_review_broker.domain.model import (
    Change,
    Identity,
    Message,
    Milliseconds,
    NewEvent,
    Origin,
    Review,
    ReviewId,
    Revision,
)
from gsd_review_broker.domain.rules import claims, discussion, proposals, verdicts
from gsd_review_broker.domain.rules.verdicts import Judgement
from gsd_review_broker.domain.tally import Totals, scopes_of, tally_of
from gsd_review_broker.domain.words import Category, Role, Verdict
from gsd_review_broker.store import migrations
from gsd_review_broker.store.rows import message_row, review_row, row_with_files
from gsd_review_broker.store.statistics import sum_row

NOW = Milliseconds(1_800_000_000_000)
PROJECTS = ("alpha", "beta", "gamma", None)
_REVIEWERS = ("codex-r1-0a1b2c3d", "codex-r2-1b2c3d4e", "claude-r1-2c3d4e5f", "human:ada", "gemini")
_SECOND = 1_000
_POLICY = review_policy()
_BATCH = 20_000
# One review in this many is still open: enough for a page even of the small database.
_OPEN_EVERY = 4


class Act:
    """One review acted out; time passes between its steps."""

    def __init__(self, **fixed: Any) -> None:
        self.now = NOW
        self.changes: list[Change] = []
        revision = Revision(
            review_id=ReviewId("0" * 16),
            number=1,
            intent="Make the parser read what it reads today, and faster",
            description="The parser looks at each line twice. " * 5,
            diff=None,
            skip_diff_validation=False,
            affected_files=(),
            author=fixed.get("proposer_id") or Identity(fixed["agent_type"]),
            written_by=Identity(fixed["agent_type"]),
            created_at=NOW,
        )
        self.did(proposals.create(origin=Origin(agent_role=Role.PROPOSER, **fixed), revision=revision, now=NOW))

    @property
    def review(self) -> Review:
        return self.changes[-1].review

    def did(self, change: Change, *, seconds: int = 60) -> None:
        self.changes.append(change)
        self.now = Milliseconds(self.now + seconds * _SECOND)

    def claim(self, reviewer: str) -> None:
        self.did(claims.claim(self.review, reviewer=Identity(reviewer), digest=None, policy=_POLICY, now=self.now))

    def say(self, sender: str, role: Role) -> None:
        body = "Why is the second pass gone? It was there for comments that span lines."
        message = Message(
            review_id=self.review.id, round=self.review.round, sender_role=role, sender=Identity(sender), body=body,
            path=None, line=None, in_reply_to=None, metadata=None, created_at=self.now,
        )  # fmt: skip
        self.did(discussion.send_message(self.review, message=message, policy=_POLICY, now=self.now), seconds=20)

    def judge(self, verdict: Verdict) -> None:
        judgement = Judgement(
            verdict=verdict,
            reason="Reads well, and the tests cover it.",
            claim_generation=self.review.claim_generation,
        )
        self.did(
            verdicts.give_verdict(
                self.review, judgement, counter_patch=None, findings=(), open_finding_count=0, pool_managed=False,
                policy=_POLICY, now=self.now,
            )
        )  # fmt: skip

    def revise(self) -> None:
        newest = next(change.revision for change in reversed(self.changes) if change.revision)
        revision = replace(newest, number=newest.number + 1, created_at=self.now)
        self.did(
            proposals.revise(
                self.review, revision=revision, caller=self.review.proposer_id, findings=(), reviewer_alive=False,
                policy=_POLICY, now=self.now,
            )
        )  # fmt: skip

    def close(self) -> None:
        caller = self.review.proposer_id
        self.did(proposals.close(self.review, closer_role=Role.PROPOSER, caller=caller, reason=None, now=self.now))


@dataclass(frozen=True, slots=True)
class Story:
    """The prepared part of a story, which does not change when it is repeated; times are offsets from its beginning."""

    review: Review
    review_values: dict[str, Any]
    revisions: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    events: list[tuple[NewEvent, str, int]]
    is_open: bool


def stories() -> list[Story]:
    prepared: list[Story] = []
    endings: list[Callable[[Act, str], None]] = [_approved, _approved, _argued, _rejected, _withdrawn]
    kinds = itertools.product(PROJECTS, (*Category, None), _REVIEWERS[:3], endings)
    for number, (project, category, reviewer, ending) in enumerate(kinds):
        act = _act(number, project, category)
        ending(act, reviewer)
        prepared.append(_story(act))
    for number, (project, category) in enumerate(itertools.product(PROJECTS, (*Category, None))):
        prepared.append(_story(_act(number, project, category)))
        claimed = _act(number, project, category)
        claimed.claim(_REVIEWERS[number % len(_REVIEWERS)])
        prepared.append(_story(claimed))
    return prepared


def _act(number: int, project: str | None, category: Category | None) -> Act:
    return Act(
        agent_type=("gsd-executor", "gsd-planner", "claude-code")[number % 3],
        phase=("1", "2", "verify")[number % 3],
        plan=f"{number % 20}-01",
        task=str(number % 50),
        category=category,
        project=project,
        proposer_id=Identity(f"proposer-{number % 7}"),
    )


def _approved(act: Act, reviewer: str) -> None:
    act.claim(reviewer)
    act.judge(Verdict.APPROVED)
    act.close()


def _argued(act: Act, reviewer: str) -> None:
    act.claim(reviewer)
    act.say(reviewer, Role.REVIEWER)
    act.say("proposer", Role.PROPOSER)
    act.judge(Verdict.CHANGES_REQUESTED)
    act.revise()
    _approved(act, reviewer)


def _rejected(act: Act, reviewer: str) -> None:
    act.claim(reviewer)
    act.judge(Verdict.CHANGES_REQUESTED)
    act.close()


def _withdrawn(act: Act, _reviewer: str) -> None:
    act.close()


def _story(act: Act) -> Story:
    events = [event for change in act.changes for event in change.events]
    return Story(
        review=act.review,
        review_values=review_row(act.review),
        revisions=[row_with_files(change.revision) for change in act.changes if change.revision],
        messages=[message_row(change.message) for change in act.changes if change.message],
        events=[(event, canonical(event.metadata), event.timestamp - NOW) for event in events],
        is_open=act.review.closed_at is None,
    )


_TIMES = ("created_at", "updated_at", "claimed_at", "claim_expires_at", "closed_at", "entered_at",
          "first_claimed_at", "first_verdict_at", "last_message_at")  # fmt: skip


class Generator:
    def __init__(self, database: Path, *, seed: int = 1) -> None:
        database.parent.mkdir(parents=True, exist_ok=True)
        self._connection = sqlite3.connect(database, isolation_level=None)
        migrations.upgrade(self._connection)
        for pragma in ("journal_mode=OFF", "synchronous=OFF", "cache_size=-1000000", "foreign_keys=OFF"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._random = random.Random(seed)
        every = stories()
        self._open = [story for story in every if story.is_open]
        self._closed = [story for story in every if not story.is_open]
        self._number, self._hash = 0, FIRST_HASH
        self._totals: dict[str, Totals] = defaultdict(Totals)

    def make(self, reviews: int) -> None:
        """Indexes are built at the end: in order, and so in a fraction of the time."""
        indexes = self._rows("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL")
        for name, _ in indexes:
            self._connection.execute(f'DROP INDEX "{name}"')
        beginnings = (Milliseconds(NOW + number * 37_000) for number in range(reviews))
        while batch := list(itertools.islice(beginnings, _BATCH)):
            self._connection.execute("BEGIN")
            self._tell(batch)
            self._connection.execute("COMMIT")
        for _, sql in indexes:
            self._connection.execute(sql)
        self._save_totals()
        self._connection.execute("UPDATE audit_head SET sequence = ?, hash = ?", (self._number, self._hash))
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.close()

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql).fetchall()

    def _tell(self, beginnings: list[Milliseconds]) -> None:
        copies = [self._told(beginning) for beginning in beginnings]
        self._insert("reviews", (review for review, _, _, _ in copies))
        self._insert("revisions", itertools.chain.from_iterable(revisions for _, revisions, _, _ in copies))
        self._insert("messages", itertools.chain.from_iterable(messages for _, _, messages, _ in copies))
        # Reviews overlap, so their events are chained in the order of their times.
        events = sorted(itertools.chain.from_iterable(events for _, _, _, events in copies), key=lambda event: event[0])
        self._insert("events", (self._chained(*event) for event in events))

    def _told(self, beginning: Milliseconds) -> tuple[Any, ...]:
        story = self._random.choice(self._open if self._random.random() < 1 / _OPEN_EVERY else self._closed)
        review_id = f"{self._random.getrandbits(64):016x}"
        pace = self._random.lognormvariate(0, 1)

        def at(moment: int) -> int:
            return beginning + int((moment - NOW) * pace)

        review = story.review_values | {"id": review_id}
        review |= {name: at(value) for name in _TIMES if (value := review[name]) is not None}
        revisions = [row | {"review_id": review_id, "created_at": at(row["created_at"])} for row in story.revisions]
        messages = [row | {"review_id": review_id, "created_at": at(row["created_at"])} for row in story.messages]
        events = [
            (beginning + int(offset * pace), index, review_id, event, metadata)
            for index, (event, metadata, offset) in enumerate(story.events)
        ]
        self._count(story, [moment for moment, *_ in events])
        return review, revisions, messages, events

    def _count(self, story: Story, moments: list[int]) -> None:
        """As the broker does: whole milliseconds between the moments."""
        tally = tally_of(
            None,
            (
                replace(event, timestamp=Milliseconds(moment))
                for (event, _, _), moment in zip(story.events, moments, strict=True)
            ),
        )
        for scope in scopes_of(story.review.project):
            self._totals[scope].add(tally)

    def _chained(self, moment: int, _index: int, review_id: str, event: NewEvent, metadata: str) -> dict[str, Any]:
        self._number += 1
        row = {
            "id": self._number,
            "review_id": review_id,
            "event_type": event.event_type,
            "actor": event.actor,
            "old_status": event.old_status,
            "new_status": event.new_status,
            "metadata": metadata,
            "timestamp": moment,
            "previous_hash": self._hash,
        }
        dated = replace(event, review_id=ReviewId(review_id), timestamp=Milliseconds(moment))
        self._hash = row["hash"] = chained(self._hash, self._number, dated, metadata)
        return row

    def _insert(self, table: str, rows: Iterable[dict[str, Any]]) -> None:
        rows = iter(rows)
        first = next(rows, None)
        if first is None:
            return
        places = ", ".join(f":{name}" for name in first)
        self._connection.executemany(
            f"INSERT INTO {table} ({', '.join(first)}) VALUES ({places})", itertools.chain([first], rows)
        )

    def _save_totals(self) -> None:
        self._connection.execute("BEGIN")
        self._insert("counters", self._counter_rows())
        self._insert(
            "histograms",
            (
                dict(sum_row(scope, name, spread))
                for scope, totals in self._totals.items()
                for name, spread in totals.spreads.items()
            ),
        )
        self._connection.execute("COMMIT")

    def _counter_rows(self) -> Iterator[dict[str, Any]]:
        for scope, totals in self._totals.items():
            for (name, key), value in totals.counts.items():
                yield {"scope": scope, "name": name, "key": key, "value": value}


def generate(database: Path, reviews: int) -> float:
    """Returns the seconds it took."""
    began = time.monotonic()
    Generator(database).make(reviews)
    return time.monotonic() - began


if __name__ == "__main__":
    import sys

    print(json.dumps({"seconds": generate(Path(sys.argv[1]), int(sys.argv[2]))}))
