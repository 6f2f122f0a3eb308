"""Whoever alters one row of a database is found out: `verify` names the event or the review."""

import asyncio
import contextlib
import hashlib
import json
import shutil
import sqlite3
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gsd_review_broker.errors import StartError
from gsd_review_broker.store import statistics, verification
from gsd_review_broker.store.statements import SqliteStatements
from tests.support.invariants import problems as broken_invariants
from tests.support.local import LocalBroker, local_broker
from tests.support.mcp import ToolError
from tests.support.processes import make_repository
from tests.support.texts import BETTER, GOOD

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Made:
    """A stopped broker's database with two reviews, one of which has seen everything."""

    database: Path
    rich: str
    plain: str


async def _live(broker: LocalBroker) -> tuple[str, str]:
    clock = broker.clock
    plain = (await broker.create(category="handoff"))["review_id"]
    await broker("claim_review", review_id=plain, reviewer_id="human:ada")
    clock.pass_time(1)
    proposal = {"project": "site", "category": "code_change", "plan": "p", "task": "t", "proposer_id": "ada"}
    rich = (await broker.create(**proposal, parent_id=plain, diff=GOOD, description="why"))["review_id"]
    clock.pass_time(1)
    await broker("claim_review", review_id=rich, reviewer_id="codex")
    clock.pass_time(1)
    said = {"sender_id": "codex", "path": "hello.txt", "line": 2, "metadata": {"tone": "kind"}}
    await broker("add_message", review_id=rich, sender_role="reviewer", body="why so?", **said)
    clock.pass_time(1)
    remark = {"title": "off by one", "body": "look", "severity": "low", "path": "hello.txt", "line_start": 2}
    no = {"verdict": "changes_requested", "reason": "not yet", "claim_generation": 1}
    await broker("submit_verdict", review_id=rich, **no, counter_patch=BETTER, findings=[remark])
    clock.pass_time(1)
    await broker("reject_counter_patch", review_id=rich, reason="mine is better", proposer_id="ada")
    await broker.create(review_id=rich, diff=BETTER, description="mended", proposer_id="ada")
    with contextlib.suppress(ToolError):
        await broker("submit_verdict", review_id=rich, verdict="approved", claim_generation=1)
    clock.pass_time(1)
    claim = await broker("claim_review", review_id=rich, reviewer_id="codex")
    clock.pass_time(1)
    await broker("add_message", review_id=rich, sender_role="proposer", sender_id="ada", body="and now?", in_reply_to=1)
    (finding,) = (await broker("get_discussion", review_id=rich))["findings"]
    settled = {"finding_id": finding["finding_id"], "disposition": "fixed", "note": "done"}
    await broker("resolve_finding", review_id=rich, **settled)
    yes = {"verdict": "approved", "reason": "fine", "claim_generation": claim["claim_generation"]}
    await broker("submit_verdict", review_id=rich, **yes)
    clock.pass_time(1)
    await broker("close_review", review_id=rich, proposer_id="ada")
    return rich, plain


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("audit")

    async def live() -> Made:
        async with local_broker(folder, root=make_repository(folder / "repository")) as broker:
            rich, plain = await _live(broker)
        return Made(broker.database, rich, plain)

    return asyncio.run(live())


@pytest.fixture
def made(whole: Made, tmp_path: Path) -> Made:
    """A copy, to be altered."""
    copy = tmp_path / "broker.sqlite3"
    shutil.copy(whole.database, copy)
    return Made(copy, whole.rich, whole.plain)


@contextlib.contextmanager
def opened(database: Path) -> Generator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        yield connection


def alter(made: Made, sql: str, **values: Any) -> None:
    """Exactly as somebody with the file would, without a foreign key in the way."""
    with opened(made.database) as connection:
        assert connection.execute(sql, {"rich": made.rich, "plain": made.plain, **values}).rowcount > 0


def problems(made: Made) -> list[str]:
    return verification.verify(made.database).problems


LAST = 15


def test_what_nobody_altered_is_whole(made: Made) -> None:
    before = made.database.read_bytes()
    report = verification.verify(made.database)
    assert report == verification.VerificationReport(
        problems=[], events=LAST, reviews=2, archived_events=0, statistics_checked=True
    )
    assert made.database.read_bytes() == before
    assert broken_invariants(made.database) == []


# Events: every column of one row, then rows taken away, added and exchanged.

ALTERED_EVENTS = [
    ("review_id", "'0123456789abcdef'"),
    ("review_id", "NULL"),
    ("event_type", "'verdict_comment'"),
    ("event_type", "'nonsense'"),
    ("actor", "'mallory'"),
    ("old_status", "'pending'"),
    ("old_status", "'nonsense'"),
    ("old_status", "NULL"),
    ("new_status", "'approved'"),
    ("new_status", "'nonsense'"),
    ("timestamp", "timestamp + 1"),
    ("timestamp", "'yesterday'"),
    ("metadata", "json_set(metadata, '$.reason', 'fine')"),
    ("metadata", "'{}'"),
    ("metadata", "'[]'"),
    ("metadata", "'null'"),
    ("metadata", "'no JSON'"),
    ("metadata", "''"),
    ("metadata", "x'00ff'"),
    # The same to us, and not to whoever reads the row in another way.
    ("metadata", "metadata || ' '"),
    ("metadata", '\'{"verdict":"approved",\' || substr(metadata, 2)'),
    ("previous_hash", "hash"),
    ("hash", "previous_hash"),
    ("hash", "upper(hash)"),
]


@pytest.mark.parametrize(("column", "value"), ALTERED_EVENTS, ids=lambda part: part[:40])
def test_an_altered_event_is_named(made: Made, column: str, value: str) -> None:
    # The verdict that asked for changes.
    alter(made, f"UPDATE events SET {column} = {value} WHERE id = 6")
    (problem,) = problems(made)
    assert problem.startswith("event 6 was altered")


@pytest.mark.parametrize("number", range(1, LAST))
def test_an_event_that_was_taken_away_leaves_a_gap_that_is_named(made: Made, number: int) -> None:
    alter(made, "DELETE FROM events WHERE id = :number", number=number)
    assert problems(made) == [f"gap: event {number} is missing, the next is {number + 1}"]


def test_the_newest_event_taken_away_is_missed(made: Made) -> None:
    alter(made, "DELETE FROM events WHERE id = :number", number=LAST)
    assert problems(made) == [f"gap: the chain ends at event {LAST - 1}, its head says {LAST}"]


def test_all_events_taken_away_are_missed(made: Made) -> None:
    alter(made, "DELETE FROM events")
    assert problems(made) == [f"gap: the chain ends at event 0, its head says {LAST}"]


def test_an_event_with_another_number_leaves_a_gap(made: Made) -> None:
    alter(made, "UPDATE events SET id = 1000 WHERE id = 6")
    assert problems(made) == ["gap: event 6 is missing, the next is 7"]


def test_two_events_that_were_exchanged_are_named(made: Made) -> None:
    for before, after in ((5, -1), (6, 5), (-1, 6)):
        alter(made, "UPDATE events SET id = :after WHERE id = :before", before=before, after=after)
    assert problems(made) == ["event 5 was altered: its hash does not fit"]


def test_an_event_from_nowhere_before_the_first_is_named(made: Made) -> None:
    alter(made, "INSERT INTO events SELECT 0, review_id, event_type, actor, old_status, new_status, metadata, "
                "timestamp, previous_hash, hash FROM events WHERE id = 1")  # fmt: skip
    assert problems(made) == ["gap: event 1 is missing, the next is 0"]


# The head of the chain.


@pytest.mark.parametrize("change", ["sequence = sequence + 1", "sequence = 3", f"hash = '{'0' * 64}'"])
def test_a_head_that_was_moved_is_named(made: Made, change: str) -> None:
    alter(made, f"UPDATE audit_head SET {change}")
    (problem,) = problems(made)
    assert problem.startswith(f"gap: the chain ends at event {LAST}, its head says")


def test_a_chain_without_a_head_is_named(made: Made) -> None:
    alter(made, "DELETE FROM audit_head")
    (problem,) = problems(made)
    assert "head" in problem


def test_a_gap_that_nobody_sealed_is_named(made: Made) -> None:
    """A run of events is deleted, and said to be in an archive."""
    with opened(made.database) as connection:
        before, after = [connection.execute("SELECT hash FROM events WHERE id = ?", (n,)).fetchone()[0] for n in (5, 7)]
        connection.execute("INSERT INTO audit_gaps VALUES (6, 7, ?, ?)", (before, after))
        connection.execute("DELETE FROM events WHERE id IN (6, 7)")
    assert problems(made) == ["the record of archived events was altered: it is not what the newest checkpoint says"]


# Who forges the chain, too, is found out by what the events say.


def chain_anew(made: Made) -> None:
    """What an attacker would do who knows how the chain is made: written from the documentation, not from our code."""
    with opened(made.database) as connection:
        connection.row_factory = sqlite3.Row
        previous = "0" * 64
        number = 0
        for row in connection.execute("SELECT * FROM events ORDER BY id").fetchall():
            names = ("review_id", "event_type", "actor", "old_status", "new_status", "timestamp")
            number = row["id"]
            said = [previous, number, *(row[name] for name in names), row["metadata"]]
            text = json.dumps(said, ensure_ascii=False, separators=(",", ":"))
            new = hashlib.sha256(text.encode()).hexdigest()
            connection.execute("UPDATE events SET previous_hash = ?, hash = ? WHERE id = ?", (previous, new, number))
            previous = new
        connection.execute("UPDATE audit_head SET sequence = ?, hash = ?", (number, previous))


def test_the_chain_is_made_as_documented(made: Made) -> None:
    with opened(made.database) as connection:
        before = connection.execute("SELECT * FROM events").fetchall()
    chain_anew(made)
    with opened(made.database) as connection:
        assert connection.execute("SELECT * FROM events").fetchall() == before
    assert problems(made) == []


FORGED = {
    "UPDATE events SET old_status = 'claimed' WHERE id = 6": (
        "event 6: review {rich} was in_review, the event says claimed"
    ),
    "UPDATE events SET actor = 'ada' WHERE id = 14": "event 14: ada approved its own work",
    "UPDATE events SET actor = ' ADA' WHERE id = 14": "event 14:  ADA approved its own work",
    "UPDATE events SET metadata = json_set(metadata, '$.digest', 'sha256:0') WHERE id = 14": (
        "event 14: the approved digest is not the current revision's"
    ),
    "UPDATE events SET metadata = json_set(metadata, '$.claim_generation', 0) WHERE id = 14": (
        "event 14: the claim generation of review {rich} shrank"
    ),
    "UPDATE events SET metadata = json_set(metadata, '$.reason', 'perfect') WHERE id = 14": (
        "review {rich}: verdict_reason is stored as 'fine', its events say 'perfect'"
    ),
    "UPDATE events SET metadata = json_set(metadata, '$.content_hash', '0') WHERE id = 5": (
        "review {rich}: message 1 is not what its events say"
    ),
    "UPDATE events SET new_status = 'pending' WHERE id = 2": (
        "review {plain}: status is stored as <Status.CLAIMED: 'claimed'>, its events say <Status.PENDING: 'pending'>"
    ),
    "UPDATE events SET old_status = 'claimed' WHERE id = 4": (
        "event 4: review {rich} was pending, the event says claimed"
    ),
}  # fmt: skip


@pytest.mark.parametrize("sql", FORGED, ids=lambda said: said[18:70])
def test_a_forged_chain_does_not_hide_what_cannot_have_happened(made: Made, sql: str) -> None:
    alter(made, sql)
    chain_anew(made)
    assert FORGED[sql].format(rich=made.rich, plain=made.plain) in problems(made)


def test_a_claim_of_what_was_claimed_is_named_in_a_forged_chain(made: Made) -> None:
    alter(made, "UPDATE events SET event_type = 'review_claimed' WHERE id = 5")
    chain_anew(made)
    assert f"event 5: review {made.rich} was claimed while claimed" in problems(made)


def test_a_forged_event_at_the_end_is_named(made: Made) -> None:
    alter(made, f"INSERT INTO events SELECT {LAST + 1}, :plain, 'verdict_submitted', 'mallory', 'claimed', 'approved', "
                f"'{{}}', timestamp, hash, '{'f' * 64}' FROM events WHERE id = {LAST}")  # fmt: skip
    assert problems(made) == [f"event {LAST + 1} was altered: its hash does not fit"]


def test_a_review_that_events_tell_of_twice_is_named_by_its_second_beginning(made: Made) -> None:
    alter(made, "UPDATE events SET review_id = :plain WHERE id = 3")
    chain_anew(made)
    found = problems(made)
    assert f"event 3: review {made.plain} was claimed, the event says None" in found
    assert any(problem.startswith(f"event 4: review {made.rich} was None") for problem in found)


# Reviews: every column whose truth the events tell.

ALTERED_REVIEWS = {
    "status": ["'approved'", "'nonsense'"],
    "version": ["version + 1"],
    "revision": ["1"],
    "round": ["round + 1"],
    "claim_generation": ["claim_generation + 1"],
    "agent_type": ["'mallory'"],
    "agent_role": ["'reviewer'", "'nonsense'"],
    "phase": ["'9'"],
    "plan": ["'another'", "NULL"],
    "task": ["'another'"],
    "category": ["'handoff'", "NULL", "'nonsense'"],
    "priority": ["'critical'", "'nonsense'"],
    "project": ["'api'", "NULL"],
    "proposer_id": ["'mallory'", "NULL"],
    "parent_id": ["id", "NULL"],
    "created_at": ["created_at - 1"],
    "intent": ["'Say nothing'"],
    "has_diff": ["0"],
    "author": ["'mallory'"],
    "digest": ["NULL", "'sha256:0'"],
    "claimed_by": ["'mallory'", "NULL"],
    "claimed_at": ["claimed_at + 1", "NULL"],
    "verdict": ["'changes_requested'", "NULL", "'nonsense'"],
    "verdict_reason": ["'great'", "NULL"],
    "outcome": ["'withdrawn'", "NULL", "'nonsense'"],
    "open_finding_count": ["1"],
    "counter_patch_status": ["'pending'", "NULL", "'nonsense'"],
    "needs_human": ["'help'"],
    "updated_at": ["updated_at + 1"],
    "closed_at": ["closed_at - 86400000", "NULL"],
    "entered_at": ["entered_at + 1"],
    "first_claimed_at": ["first_claimed_at + 1", "NULL"],
    "first_verdict_at": ["first_verdict_at + 1", "NULL"],
    "last_verdict": ["'changes_requested'", "NULL", "'nonsense'"],
    "message_count": ["message_count + 1"],
    "last_message_at": ["last_message_at + 1", "NULL"],
}


@pytest.mark.parametrize(
    ("column", "value"), [(column, value) for column, values in ALTERED_REVIEWS.items() for value in values]
)
def test_an_altered_review_is_named(made: Made, column: str, value: str) -> None:
    alter(made, f"UPDATE reviews SET {column} = {value} WHERE id = :rich")
    found = problems(made)
    assert found
    # Which review, and where it can be told, what of it.
    assert all(problem.startswith(f"review {made.rich}") for problem in found), found
    assert any(f"{column} is stored as" in problem or "cannot be read" in problem for problem in found), found


def test_every_column_of_a_review_is_altered_here_or_known_to_be_untold() -> None:
    """A new column has to be thought of. Those left out are deadlines and keys, which come from other columns."""
    from gsd_review_broker.store.tables import reviews

    untold = {
        *("id", "rank", "workspace", "claim_expires_at", "reserved_for", "reserved_until", "last_message_preview"),
        *("proposer_key", "author_key", "reserved_key"),
    }
    assert set(reviews.c.keys()) == set(ALTERED_REVIEWS) | untold


def test_a_live_claim_given_to_another_is_named(made: Made) -> None:
    alter(made, "UPDATE reviews SET claimed_by = 'mallory' WHERE id = :plain")
    assert problems(made) == [f"review {made.plain}: claimed_by is stored as 'mallory', its events say 'human:ada'"]


def test_a_review_whose_row_was_deleted_is_named(made: Made) -> None:
    alter(made, "DELETE FROM revisions WHERE review_id = :plain")
    alter(made, "DELETE FROM reviews WHERE id = :plain")
    assert f"review {made.plain} has events and is not stored" in problems(made)


def test_a_review_deleted_without_what_belongs_to_it_is_named(made: Made) -> None:
    alter(made, "DELETE FROM reviews WHERE id = :rich")
    found = problems(made)
    assert found
    assert any(made.rich in problem for problem in found), found


def test_a_review_that_no_event_tells_of_is_named(made: Made) -> None:
    with opened(made.database) as connection:
        names = [row[1] for row in connection.execute("PRAGMA table_info(reviews)")][1:]
        columns = ", ".join(f'"{name}"' for name in names)
        for forged in ("0000000000000000", "ffffffffffffffff"):
            connection.execute(
                f"INSERT INTO reviews (id, {columns}) SELECT '{forged}', {columns} FROM reviews WHERE id = ?",
                (made.plain,),
            )
    found = problems(made)
    for forged in ("0000000000000000", "ffffffffffffffff"):
        assert f"review {forged} is stored and has no events" in found


def test_two_reviews_that_exchanged_their_rows_are_both_named(made: Made) -> None:
    for before, after in (("rich", "x"), ("plain", "rich"), ("x", "plain")):
        alter(made, f"UPDATE reviews SET id = :{after} WHERE id = :{before}", x="x")
    text = "\n".join(problems(made))
    assert f"review {made.rich}:" in text
    assert f"review {made.plain}:" in text


# What stands beside a review.

ALTERED_CONTENTS = [
    ("revisions", "number = 1", "revision 1", "intent", "'Say nothing'"),
    ("revisions", "number = 2", "revision 2", "description", "NULL"),
    ("revisions", "number = 2", "revision 2", "diff", "CAST(CAST(diff AS TEXT) || char(10) AS BLOB)"),
    ("revisions", "number = 2", "revision", "diff", "CAST(diff AS TEXT)"),
    ("revisions", "number = 2", "revision 2", "diff", "NULL"),
    ("revisions", "number = 2", "revision 2", "skip_diff_validation", "1"),
    ("revisions", "number = 2", "revision 2", "author", "'mallory'"),
    ("revisions", "number = 2", "revision 2", "written_by", "'mallory'"),
    ("revisions", "number = 2", "revision 2", "affected_files", "'[]'"),
    ("revisions", "number = 2", "revision", "affected_files", "'no JSON'"),
    ("messages", "id = 1", "message 1", "body", "'all is well'"),
    ("messages", "id = 1", "message 1", "body", "body || ' '"),
    ("messages", "id = 1", "message 1", "sender", "'mallory'"),
    ("messages", "id = 1", "message 1", "sender_role", "'proposer'"),
    ("messages", "id = 1", "message", "sender_role", "'nonsense'"),
    ("messages", "id = 1", "message 1", "path", "'other.txt'"),
    ("messages", "id = 1", "message 1", "line", "3"),
    ("messages", "id = 2", "message 2", "line", "0"),
    ("messages", "id = 1", "message 1", "round", "2"),
    ("messages", "id = 2", "message 2", "in_reply_to", "NULL"),
    ("messages", "id = 1", "message 1", "metadata", "NULL"),
    ("messages", "id = 1", "message", "metadata", "'no JSON'"),
    ("counter_patches", "1", "counter-patch 1", "diff", "x'00'"),
    ("counter_patches", "1", "counter-patch 1", "offered_by", "'mallory'"),
    ("counter_patches", "1", "counter-patch 1", "status", "'accepted'"),
    ("counter_patches", "1", "counter-patch", "status", "'nonsense'"),
    ("counter_patches", "1", "counter-patch 1", "reason", "'none'"),
    ("counter_patches", "1", "counter-patch 1", "revision", "2"),
    ("counter_patches", "1", "counter-patch 1", "round", "2"),
    ("counter_patches", "1", "counter-patch", "affected_files", "'no JSON'"),
    ("findings", "1", "finding", "title", "'nothing'"),
    ("findings", "1", "finding", "body", "'nothing'"),
    ("findings", "1", "finding", "severity", "'critical'"),
    ("findings", "1", "finding", "suggestion", "'rm -rf'"),
    ("findings", "1", "finding", "confidence", "0.5"),
    ("findings", "1", "finding", "disposition", "'open'"),
    ("findings", "1", "finding", "disposition", "'nonsense'"),
    ("findings", "1", "finding", "note", "NULL"),
]


@pytest.mark.parametrize(("table", "row", "what", "column", "value"), ALTERED_CONTENTS)
def test_altered_content_is_named_with_its_review(
    made: Made, table: str, row: str, what: str, column: str, value: str
) -> None:
    alter(made, f"UPDATE {table} SET {column} = {value} WHERE review_id = :rich AND {row}")
    found = problems(made)
    assert found
    assert all(problem.startswith(f"review {made.rich}") and what in problem for problem in found), found


@pytest.mark.parametrize("table", ["revisions", "messages", "counter_patches", "findings"])
def test_content_that_was_taken_away_is_named(made: Made, table: str) -> None:
    alter(made, f"DELETE FROM {table} WHERE review_id = :rich")
    found = problems(made)
    assert found
    assert all(problem.startswith(f"review {made.rich}: ") for problem in found), found


def test_a_message_that_nobody_sent_is_named(made: Made) -> None:
    alter(made, "INSERT INTO messages (review_id, round, sender_role, sender, body, created_at) "
                "VALUES (:rich, 2, 'reviewer', 'codex', 'LGTM', 0)")  # fmt: skip
    assert problems(made) == [f"review {made.rich}: message 3 is not what its events say"]


def test_two_messages_that_were_exchanged_are_named(made: Made) -> None:
    for before, after in ((1, -1), (2, 1), (-1, 2)):
        alter(made, "UPDATE messages SET id = :after WHERE id = :before", before=before, after=after)
    assert problems(made) == [f"review {made.rich}: message {n} is not what its events say" for n in (1, 2)]


def test_a_message_moved_to_another_review_is_missed_here_and_found_there(made: Made) -> None:
    alter(made, "UPDATE messages SET review_id = :plain WHERE id = 2")
    assert sorted(problems(made)) == sorted(
        [f"review {made.rich}: message 2 is not what its events say",
         f"review {made.plain}: message 1 is not what its events say"]
    )  # fmt: skip


def test_a_row_of_no_review_is_told(made: Made) -> None:
    alter(made, "UPDATE messages SET review_id = 'nobody' WHERE id = 1")
    assert any("a row of messages does not belong to a review" in problem for problem in problems(made))


# Statistics.


@pytest.mark.parametrize(("scope", "where"), [("", "all projects"), ("site", "project site")])
def test_an_altered_counter_is_named(made: Made, scope: str, where: str) -> None:
    alter(made, "INSERT INTO counters VALUES (:scope, 'event', 'message_sent', 1)", scope=scope)
    assert problems(made) == [f"statistics of {where}: event message_sent is 3, the events say 2"]


def test_a_counter_that_was_taken_away_is_named(made: Made) -> None:
    alter(made, "DELETE FROM counters WHERE scope = '' AND name = 'step' AND key LIKE '%:approved:%'")
    assert "statistics of all projects: last_verdict approved is 0, the events say 1" in problems(made)


@pytest.mark.parametrize("key", ["", "review_created", "verdict_submitted:claimed:approved:normal", "a:b"])
def test_a_step_that_cannot_be_read_is_told(made: Made, key: str) -> None:
    alter(made, "INSERT INTO counters VALUES ('', 'step', :key, 1)", key=key)
    assert problems(made) == ["the counters were altered: they cannot be read"]


def test_a_verdict_that_nobody_gave_is_named(made: Made) -> None:
    alter(made, """INSERT INTO counters VALUES ('', 'reviewer', '["mallory","approved"]', 7)""")
    assert problems(made) == ["""statistics of all projects: reviewer ["mallory","approved"] is 7, the events say 0"""]


def test_statistics_of_a_project_that_is_none_are_named(made: Made) -> None:
    alter(made, "INSERT INTO counters VALUES ('ghost', 'status', 'closed', 1)")
    assert problems(made) == ["statistics of project ghost: status closed is 1, the events say 0"]


@pytest.mark.parametrize(
    "change", ["count = count + 1", "total = total + 1", "least = 0", "most = most + 1", "bucket = bucket + 1"]
)
def test_an_altered_histogram_is_named(made: Made, change: str) -> None:
    alter(made, f"UPDATE histogram_buckets SET {change} WHERE scope = 'site' AND name = 'time_to_claim'")
    assert problems(made) == ["statistics of project site: time_to_claim is not what the events say"]


@pytest.mark.parametrize("change", ["bucket = bucket - 528", "bucket = bucket + 528"])
def test_a_bucket_that_does_not_exist_is_told(made: Made, change: str) -> None:
    alter(made, f"UPDATE histogram_buckets SET {change} WHERE scope = 'site' AND name = 'time_to_claim'")
    assert problems(made) == ["the counters were altered: they cannot be read"]


def test_a_histogram_that_was_taken_away_is_named(made: Made) -> None:
    alter(made, "DELETE FROM histogram_buckets WHERE scope = '' AND name = 'review_duration'")
    assert problems(made) == ["statistics of all projects: review_duration is not what the events say"]


@pytest.fixture
def summed_up(made: Made, monkeypatch: pytest.MonkeyPatch) -> Made:
    """All values of the histograms are in their sums."""
    monkeypatch.setattr(statistics, "ENOUGH_TO_SUM_UP", 1)
    with opened(made.database) as connection:
        names = connection.execute("SELECT DISTINCT scope, name FROM histogram_buckets").fetchall()
        statistics.sum_up(SqliteStatements(connection), names)
        assert connection.execute("SELECT count(*) FROM histogram_buckets").fetchone() == (0,)
    assert problems(made) == []
    return made


_ONE_MORE = "buckets = CAST(x'01' || substr(buckets, 2) AS BLOB)"


@pytest.mark.parametrize("change", ["total = total + 1", "least = 0", "most = most + 1", _ONE_MORE])
def test_an_altered_sum_is_named(summed_up: Made, change: str) -> None:
    alter(summed_up, f"UPDATE histograms SET {change} WHERE scope = 'site' AND name = 'time_to_claim'")
    assert problems(summed_up) == ["statistics of project site: time_to_claim is not what the events say"]


def test_a_sum_that_was_taken_away_is_named(summed_up: Made) -> None:
    alter(summed_up, "DELETE FROM histograms WHERE scope = '' AND name = 'review_duration'")
    assert problems(summed_up) == ["statistics of all projects: review_duration is not what the events say"]


@pytest.mark.parametrize("buckets", ["x''", "substr(buckets, 2)", "CAST(buckets || x'00' AS BLOB)"])
def test_a_sum_of_the_wrong_size_is_told(summed_up: Made, buckets: str) -> None:
    alter(summed_up, f"UPDATE histograms SET buckets = {buckets}")
    assert problems(summed_up) == ["the counters were altered: they cannot be read"]


# The file itself.


def told(database: Path) -> str:
    """One way or the other, in words; anything else that is raised fails the test."""
    try:
        return "\n".join(verification.verify(database).problems)
    except StartError as error:
        return str(error)


def test_a_file_that_was_cut_is_told(made: Made) -> None:
    content = made.database.read_bytes()
    for part in (2, 3, 10):
        made.database.write_bytes(content[: len(content) // part])
        assert "malformed" in told(made.database) or "not a database" in told(made.database)


def test_a_damaged_page_is_told(made: Made) -> None:
    """Whichever it is; some hold nothing but free room."""
    content = made.database.read_bytes()
    pages = range(1, len(content) // 4096)
    silent = []
    for page in pages:
        made.database.write_bytes(content[: page * 4096] + b"\xff" * 4096 + content[(page + 1) * 4096 :])
        if not told(made.database):
            silent.append(page)
    assert silent == []


def test_an_index_that_does_not_fit_its_table_is_told(made: Made) -> None:
    with opened(made.database) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = replace(sql, 'closed_at', 'created_at') "
                           "WHERE name = 'ix_reviews_closed_at'")  # fmt: skip
    assert "ix_reviews_closed_at" in told(made.database)


@pytest.mark.parametrize("content", [b"no database " * 1_000, b"SQLite format 3\0" + b"\xff" * 4_096])
def test_what_is_no_database_is_refused_in_a_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.sqlite3"
    path.write_bytes(content)
    with pytest.raises(StartError, match="cannot be read"):
        verification.verify(path)
    assert path.read_bytes() == content


def test_a_file_that_is_not_there_is_refused_and_not_made(tmp_path: Path) -> None:
    for path in (tmp_path / "none.sqlite3", tmp_path):
        with pytest.raises(StartError, match="there is no database"):
            verification.verify(path)
    assert not (tmp_path / "none.sqlite3").exists()


def test_an_archive_that_is_not_there_is_refused(made: Made, tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"there is no database .*none"):
        verification.verify(made.database, [tmp_path / "none"])


@pytest.mark.parametrize("version", ["0000", "9999"])
def test_another_schema_is_refused_and_named(made: Made, version: str) -> None:
    alter(made, "UPDATE alembic_version SET version_num = :version", version=version)
    with pytest.raises(StartError, match=f"schema {version}"):
        verification.verify(made.database)
    with pytest.raises(StartError, match=f"schema {version}"):
        list(verification.export(made.database))


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "x.sqlite3") as connection:
        connection.execute("CREATE TABLE precious (x)")
    with pytest.raises(StartError, match="has schema None"):
        verification.verify(tmp_path / "x.sqlite3")


TABLES = (
    "events", "reviews", "revisions", "messages", "counter_patches", "findings", "counters", "histogram_buckets",
    "histograms",
)  # fmt: skip


_RARE = [pytest.param(value, marks=pytest.mark.torture) for value in ("'text'", "-1")]


@pytest.mark.parametrize("value", ["x'00ff'", "1.5", *_RARE])
@pytest.mark.parametrize("table", [*TABLES, "audit_head", "audit_gaps"])
@pytest.mark.slow
def test_no_value_whatever_makes_verify_fall_over(made: Made, table: str, value: str) -> None:
    """SQLite stores any kind of value in any column. Whatever stands there, verify ends with an answer."""
    if table == "histograms":
        alter(made, "INSERT INTO histograms VALUES ('', 'time_to_claim', 1, 1, 1, zeroblob(4224))")
    if table == "audit_gaps":
        alter(made, f"INSERT INTO audit_gaps VALUES (100, 200, '{'0' * 64}', '{'0' * 64}')")
    content = made.database.read_bytes()
    with opened(made.database) as connection:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    fell = {}
    for column in columns:
        made.database.write_bytes(content)
        with contextlib.suppress(sqlite3.IntegrityError):
            alter(made, f'UPDATE OR REPLACE {table} SET "{column}" = {value}')
        try:
            told(made.database)
        except Exception as error:  # noqa: BLE001 - all of them are told below
            fell[column] = repr(error)
    assert fell == {}


# Elsewhere.


def test_an_export_holds_every_event_as_it_is_stored(made: Made) -> None:
    exported = list(verification.export(made.database))
    with opened(made.database) as connection:
        connection.row_factory = sqlite3.Row
        stored = [dict(row) for row in connection.execute("SELECT * FROM events ORDER BY id")]
    assert [{**event, "metadata": json.loads(event["metadata"])} for event in stored] == [
        {name: event[name] for name in stored[0]} for event in exported
    ]


async def test_a_database_is_whole_while_its_broker_runs(tmp_path: Path) -> None:
    async with local_broker(tmp_path, root=make_repository(tmp_path / "repository")) as broker:
        await _live(broker)
        report = verification.verify(broker.database)
        assert (report.problems, report.events) == ([], LAST)
        await broker.create()
        assert verification.verify(broker.database).events == LAST + 1


@pytest.mark.parametrize(
    ("sql", "table"),
    [
        ("UPDATE messages SET body = 'other'", "messages"),
        ("DELETE FROM counters", "counters"),
        ("INSERT INTO review_failures VALUES ('x', 1, 0)", "review_failures"),
    ],
)
def test_tables_that_differ_are_named(made: Made, tmp_path: Path, sql: str, table: str) -> None:
    copy = tmp_path / "copy.sqlite3"
    shutil.copy(made.database, copy)
    assert verification.differing_tables(made.database, copy) == []
    with contextlib.closing(sqlite3.connect(copy)) as connection, connection:
        assert connection.execute(sql).rowcount > 0
    assert verification.differing_tables(made.database, copy) == [table]
