"""A pruned database and its archive, as files: what is altered in either of them is named."""

import asyncio
import shutil
from pathlib import Path

import pytest

from gsd_review_broker.errors import StartError
from gsd_review_broker.store import archive, verification
from tests.integration.service.test_retention import DAY, TABLES, closed, ended, interleaved, opened, prune
from tests.support.local import local_broker

pytestmark = [pytest.mark.sqlite, pytest.mark.slow]


@pytest.fixture(scope="module")
def pruned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a stopped broker's database and its archive: two gaps, one review left."""
    folder = tmp_path_factory.mktemp("pruned")

    async def live() -> None:
        async with local_broker(folder) as broker:
            reviews = await interleaved(broker)
            for review_id in reviews[:2]:
                await ended(broker, review_id)
            broker.clock.pass_time(DAY)
            await prune(broker, "2027-01-16")

    asyncio.run(live())
    return folder


@pytest.fixture
def kept(pruned: Path, tmp_path: Path) -> tuple[Path, Path]:
    """The database and its archive, to be altered."""
    for path in pruned.glob("broker.sqlite3*"):
        shutil.copy(path, tmp_path)
    return tmp_path / "broker.sqlite3", tmp_path / "broker.sqlite3.archive-2027-01-16"


def alter(database: Path, sql: str) -> None:
    with opened(database) as connection:
        assert connection.execute(sql).rowcount > 0


def test_what_was_pruned_is_whole_alone_together_and_apart(kept: tuple[Path, Path]) -> None:
    main, old = kept
    alone, together, apart = verification.verify(main), verification.verify(main, [old]), verification.verify(old)
    assert (alone.problems, together.problems, apart.problems) == ([], [], [])
    # Three of the one that stayed, and the checkpoint.
    assert (alone.events, alone.reviews, alone.archived_events, alone.statistics_checked) == (4, 1, 10, False)
    assert (together.events, together.reviews, together.archived_events, together.statistics_checked) == (
        14, 3, 10, True,
    )  # fmt: skip
    assert (apart.events, apart.reviews, apart.archived_events, apart.statistics_checked) == (10, 2, 10, False)


SEAL = "the record of archived events was altered: it is not what the newest checkpoint says"
ALTERED_GAPS = {
    "DELETE FROM audit_gaps WHERE first = 1": "gap: event 1 is missing, the next is 3",
    "DELETE FROM audit_gaps WHERE first = 4": "gap: event 4 is missing, the next is 6",
    "UPDATE audit_gaps SET first = 5 WHERE first = 4": "gap: event 4 is missing, the next is 6",
    "UPDATE audit_gaps SET last = 4 WHERE first = 4": "gap: event 5 is missing, the next is 6",
    "UPDATE audit_gaps SET last = 6 WHERE first = 4": "gap: the archived events 7 to 8 do not continue event 6",
    "UPDATE audit_gaps SET previous_hash = hash WHERE first = 4": (
        "gap: the archived events 4 to 5 do not continue event 3"
    ),
    "UPDATE audit_gaps SET hash = previous_hash WHERE first = 4": "event 6 was altered: its hash does not fit",
    "INSERT INTO audit_gaps VALUES (500, 600, 'x', 'y')": SEAL,
    "INSERT INTO audit_gaps VALUES (-5, 0, 'x', 'y')": SEAL,
}


@pytest.mark.parametrize("sql", ALTERED_GAPS)
def test_a_gap_that_was_altered_is_named(kept: tuple[Path, Path], sql: str) -> None:
    main, _ = kept
    alter(main, sql)
    assert verification.verify(main).problems == [ALTERED_GAPS[sql]]


@pytest.mark.parametrize("sql", ALTERED_GAPS)
def test_with_the_archive_the_record_of_gaps_is_still_compared(kept: tuple[Path, Path], sql: str) -> None:
    main, old = kept
    alter(main, sql)
    assert verification.verify(main, [old]).problems == [SEAL]


def test_a_gap_widened_over_an_event_that_was_deleted_is_named(kept: tuple[Path, Path]) -> None:
    """The whole of it: the event is gone, and the gap made to hold it, with hashes that fit."""
    main, _ = kept
    with opened(main) as connection:
        ((of_three,),) = connection.execute("SELECT hash FROM events WHERE id = 3").fetchall()
        connection.execute("UPDATE audit_gaps SET last = 3, hash = ? WHERE first = 1", (of_three,))
        connection.execute("DELETE FROM events WHERE id = 3")
    assert verification.verify(main).problems == [SEAL]


def test_a_checkpoint_that_was_altered_or_taken_away_is_named(kept: tuple[Path, Path]) -> None:
    main, _ = kept
    content = main.read_bytes()
    alter(main, "UPDATE events SET metadata = json_set(metadata, '$.reviews', 1) WHERE id = 14")
    assert verification.verify(main).problems == ["event 14 was altered: its hash does not fit"]
    main.write_bytes(content)
    alter(main, "DELETE FROM events WHERE id = 14")
    assert len(verification.verify(main).problems) == 1


ALTERED_ARCHIVES = {
    "UPDATE events SET actor = 'mallory' WHERE id = 4": "event 4 was altered",
    "UPDATE events SET metadata = '{}' WHERE id = 5": "event 5 was altered",
    "UPDATE events SET hash = previous_hash WHERE id = 5": "event 5 was altered",
    "UPDATE events SET new_status = 'nonsense' WHERE id = 5": "event 5 was altered",
    "UPDATE reviews SET verdict = 'changes_requested'": "verdict is stored as",
    "UPDATE messages SET body = 'all is well'": "message 1",
    "DELETE FROM revisions": "revision 1",
    "UPDATE revisions SET diff = x'00'": "revision 1",
}


@pytest.mark.parametrize("sql", ALTERED_ARCHIVES)
def test_an_archive_that_was_altered_is_named_alone_and_together(kept: tuple[Path, Path], sql: str) -> None:
    main, old = kept
    alter(old, sql)
    # The database itself is as whole as it was.
    assert verification.verify(main).problems == []
    for found in (verification.verify(old).problems, verification.verify(main, [old]).problems):
        assert ALTERED_ARCHIVES[sql] in found[0]


def test_an_event_taken_out_of_an_archive_is_named_alone_and_together(kept: tuple[Path, Path]) -> None:
    main, old = kept
    alter(old, "DELETE FROM events WHERE id = 4")
    assert verification.verify(main, [old]).problems == ["gap: event 4 is missing, the next is 5"]
    assert verification.verify(old).problems


def test_a_review_taken_out_of_an_archive_is_missed(kept: tuple[Path, Path]) -> None:
    main, old = kept
    with opened(old) as connection:
        ((gone,),) = connection.execute("SELECT review_id FROM events WHERE id = 1").fetchall()
        for table in reversed(TABLES):
            key = "id" if table == "reviews" else "review_id"
            connection.execute(f"DELETE FROM {table} WHERE {key} = ?", (gone,))
    assert verification.verify(main, [old]).problems == ["gap: event 1 is missing, the next is 2"]


def test_statistics_altered_after_a_prune_are_named_with_the_archive(kept: tuple[Path, Path]) -> None:
    main, old = kept
    alter(main, "INSERT INTO counters VALUES ('', 'last_verdict', 'approved', 1)")
    assert verification.verify(main).problems == []
    assert verification.verify(main, [old]).problems == [
        "statistics of all projects: last_verdict approved is 3, the events say 2"
    ]


def test_an_archive_that_is_a_link_is_not_written_to(tmp_path: Path) -> None:
    with archive.opened_archive(tmp_path / "elsewhere"):
        pass
    (link := tmp_path / "archive").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StartError, match="is a link"), archive.opened_archive(link):
        pass


def test_a_foreign_archive_is_named(kept: tuple[Path, Path], tmp_path: Path) -> None:
    main, old = kept
    empty = tmp_path / "empty"
    with archive.opened_archive(empty):
        pass
    assert verification.verify(main, [empty]).problems == ["gap: event 1 is missing, the next is 3"]
    assert verification.verify(main, [old, empty]).problems == []


async def test_a_pruned_database_starts_and_works_as_before(kept: tuple[Path, Path]) -> None:
    main, old = kept
    async with local_broker(main.parent) as broker:
        broker.clock.pass_time(2 * DAY)
        assert len((await broker("list_reviews"))["reviews"]) == 1
        assert (await broker("get_review_stats"))["total_reviews"] == 3
        await closed(broker)
    report = verification.verify(main, [old])
    assert (report.problems, report.reviews) == ([], 4)
