"""`tandem audit verify`, `tandem audit export` and `tandem db prune`, as a person or a script runs them."""

import contextlib
import hashlib
import http.client
import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import pytest

from gsd_review_broker.cli.main import main
from tests.support.local import PROPOSAL
from tests.support.mcp import Mcp
from tests.support.processes import DATABASE, BrokerProcess, free_environment, git, make_repository
from tests.support.waiting import PATIENCE, until

TANDEM = str(Path(sys.executable).parent / "tandem")


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Exactly one document."""
        return json.loads(self.out)


def tandem(folder: Path, home: Path, *arguments: str) -> Ran:
    done = subprocess.run(
        [TANDEM, *arguments], cwd=folder, env=free_environment(home), capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return Ran(done.returncode, done.stdout, done.stderr)


def closed_review(client: Mcp) -> str:
    review_id = client("create_review", **PROPOSAL)["review_id"]
    claim = client("claim_review", review_id=review_id, reviewer_id="codex")
    client("add_message", review_id=review_id, sender_role="reviewer", body=f"about {review_id}")
    yes = {"verdict": "approved", "claim_generation": claim["claim_generation"]}
    client("submit_verdict", review_id=review_id, **yes)
    client("close_review", review_id=review_id)
    return review_id


def moment_after_all(client: Mcp) -> str:
    """A moment after the last event, and past by now."""
    last = datetime.fromisoformat(client("broker_status")["last_activity_at"]) + timedelta(milliseconds=1)
    until(lambda: datetime.now(UTC) > last)
    return last.isoformat(timespec="milliseconds")


@dataclass
class Load:
    """Clients that live through whole reviews until they are stopped, and remember which were acknowledged."""

    port: int
    made: list[str] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list)

    def _run(self) -> None:
        client = Mcp(self.port)
        try:
            while not self.stopping.is_set():
                self.made.append(closed_review(client))
        except BaseException as error:  # noqa: BLE001 - the test must hear of it
            self.failures.append(error)
        finally:
            client.close()

    def __enter__(self) -> Self:
        self.threads = [threading.Thread(target=self._run) for _ in range(3)]
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        for thread in self.threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in self.threads)
        assert self.failures == []

    def more(self, count: int) -> None:
        wanted = len(self.made) + count
        until(lambda: bool(self.failures) or len(self.made) >= wanted)


@dataclass(frozen=True)
class Place:
    repository: Path
    home: Path

    @property
    def database(self) -> Path:
        return self.repository / DATABASE

    def tandem(self, *arguments: str) -> Ran:
        return tandem(self.repository, self.home, *arguments)


# Runs `tandem` in a folder and gives what it said.
Here = Callable[..., Ran]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    """The same in this process, where it is not about processes: most of a run is spent on imports."""

    def run(folder: Path, *arguments: str) -> Ran:
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", ["tandem", *arguments])
        try:
            code = main(arguments)
        except SystemExit as usage:
            code = int(usage.code or 0)
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return run


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A repository whose broker has come and gone: thirty reviews closed, one open."""
    folder = tmp_path_factory.mktemp("commands")
    place = Place(make_repository(folder / "repository"), folder / "home")
    place.home.mkdir()
    with BrokerProcess(place.repository, home=place.home) as broker:
        client = broker.client()
        for _ in range(30):
            closed_review(client)
        client("create_review", **PROPOSAL)
        client.close()
        assert broker.stop() == 0
    return place


@pytest.fixture
def place(stopped: Place, tmp_path: Path) -> Place:
    """A copy of it, to be altered."""
    repository = tmp_path / "copy"
    shutil.copytree(stopped.repository, repository)
    return Place(repository, tmp_path / "home")


@contextlib.contextmanager
def opened(database: Path) -> Generator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        yield connection


# Verifying.


def test_a_whole_database_exits_0_and_says_so(stopped: Place, here: Here) -> None:
    ran = here(stopped.repository, "audit", "verify")
    assert (ran.code, ran.out, ran.err) == (0, "whole  151 events, 31 reviews\n", "")
    as_json = stopped.tandem("audit", "verify", "--json")
    assert (as_json.code, as_json.err) == (0, "")
    assert as_json.json == {
        "whole": True,
        "problems": [],
        "events": 151,
        "reviews": 31,
        "archived_events": 0,
        "statistics_checked": True,
    }


def test_an_altered_event_exits_1_and_is_named(place: Place, here: Here) -> None:
    with opened(place.database) as connection:
        connection.execute("UPDATE events SET actor = 'mallory' WHERE id = 42")
    ran = here(place.repository, "audit", "verify")
    assert (ran.code, ran.out) == (1, "not whole  event 42 was altered: its hash does not fit\n")
    as_json = place.tandem("audit", "verify", "--json")
    assert (as_json.code, as_json.json["whole"]) == (1, False)
    assert as_json.json["problems"] == ["event 42 was altered: its hash does not fit"]


def test_of_many_problems_the_first_are_shown_and_json_tells_all(place: Place, here: Here) -> None:
    with opened(place.database) as connection:
        connection.execute("UPDATE messages SET body = '\x1b]0;gotcha\x07'")
        connection.execute("UPDATE reviews SET claimed_by = '\x1b[31mmallory' WHERE status = 'closed'")
    as_json = here(place.repository, "audit", "verify", "--json")
    assert (as_json.code, len(as_json.json["problems"])) == (1, 60)
    ran = here(place.repository, "audit", "verify")
    assert ran.code == 1
    lines = ran.out.splitlines()
    assert len(lines) == 21
    assert lines[-1] == "and 40 more (--json lists all)"
    # Nothing of what somebody wrote into the file reaches the terminal as it is.
    assert "\x1b" not in ran.out


@pytest.mark.parametrize("command", ["verify", "export"])
def test_where_there_is_no_database_it_exits_3_and_makes_none(tmp_path: Path, here: Here, command: str) -> None:
    repository = make_repository(tmp_path / "empty")
    ran = here(repository, "audit", command)
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.startswith("tandem: there is no database")
    assert len(ran.err.splitlines()) == 1
    assert git(repository, "status", "--porcelain") == b""
    assert not (repository / ".planning").exists()


def test_what_cannot_be_verified_is_told_as_json_too(tmp_path: Path, here: Here) -> None:
    (tmp_path / "notes.txt").write_text("no database\n" * 500)
    for name in ("none.sqlite3", "notes.txt"):
        ran = here(tmp_path, "audit", "verify", "--json", "--db", str(tmp_path / name))
        assert (ran.code, ran.json["error"]["code"]) == (3, "unavailable")
        assert name in ran.json["error"]["message"]


def test_a_database_is_whole_at_every_moment_of_a_busy_broker(process: BrokerProcess, own_home: Path) -> None:
    with Load(process.port) as load:
        load.more(1)
        seen = []
        for _ in range(2):
            ran = tandem(process.folder, own_home, "audit", "verify", "--json")
            assert (ran.code, ran.json["problems"], ran.json["statistics_checked"]) == (0, [], True)
            seen.append(ran.json["events"])
            load.more(1)
    # It was at work meanwhile.
    assert seen == sorted(set(seen))


# Exporting.


def rehashed(lines: list[dict[str, Any]]) -> str:
    """The hash at the end of the chain, from what the lines say and nothing else."""
    previous = "0" * 64
    for number, line in enumerate(lines, 1):
        assert line["id"] == number
        assert line["previous_hash"] == previous
        metadata = json.dumps(line["metadata"], ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        names = ("review_id", "event_type", "actor", "old_status", "new_status", "timestamp")
        said = [previous, number, *(line[name] for name in names), metadata]
        previous = hashlib.sha256(json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode()).hexdigest()
        assert line["hash"] == previous
    return previous


def test_an_export_is_one_event_a_line_and_its_chain_can_be_checked_elsewhere(stopped: Place) -> None:
    ran = stopped.tandem("audit", "export")
    assert (ran.code, ran.err) == (0, "")
    lines = [json.loads(line) for line in ran.out.splitlines()]
    assert len(lines) == 151
    assert list(lines[0]) == [
        "event_type", "actor", "review_id", "old_status", "new_status", "timestamp", "metadata", "id",
        "previous_hash", "hash",
    ]  # fmt: skip
    with opened(stopped.database) as connection:
        ((head,),) = connection.execute("SELECT hash FROM audit_head").fetchall()
    assert rehashed(lines) == head
    # Any line that is altered breaks it.
    lines[70]["actor"] = "mallory"
    with pytest.raises(AssertionError):
        rehashed(lines)


def test_texts_of_any_kind_survive_the_export(process: BrokerProcess, here: Here) -> None:
    odd = 'naïve 審查者 🦉 \u2028 \x7f \t quote" back\\slash </script> \x1b[31m'
    process.client()("create_review", **{**PROPOSAL, "intent": odd})
    ran = here(process.folder, "audit", "export")
    assert ran.out.isascii()
    (line,) = [json.loads(line) for line in ran.out.splitlines()]
    assert line["metadata"]["intent"] == odd
    rehashed([line])


def test_an_export_into_a_file_takes_a_new_name_and_keeps_what_is_there(
    stopped: Place, tmp_path: Path, here: Here
) -> None:
    target = tmp_path / "events.jsonl"
    first = here(stopped.repository, "audit", "export", "--output", str(target))
    assert (first.code, first.out) == (0, "")
    content = target.read_text()
    assert len(content.splitlines()) == 151
    again = here(stopped.repository, "audit", "export", "--output", str(target))
    assert again.code == 6
    assert str(target) in again.err
    assert target.read_text() == content
    nowhere = here(stopped.repository, "audit", "export", "--output", str(tmp_path / "no" / "folder"))
    assert nowhere.code == 3


def test_an_export_that_fails_leaves_no_file(tmp_path: Path, here: Here) -> None:
    target = tmp_path / "events.jsonl"
    ran = here(make_repository(tmp_path / "empty"), "audit", "export", "--output", str(target))
    assert ran.code == 3
    assert not target.exists()


def test_a_reader_that_has_seen_enough_is_no_disaster(stopped: Place) -> None:
    with subprocess.Popen(
        [TANDEM, "audit", "export"], cwd=stopped.repository, env=free_environment(stopped.home),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as exporting:  # fmt: skip
        assert exporting.stdout is not None
        assert exporting.stderr is not None
        assert json.loads(exporting.stdout.readline())["id"] == 1
        exporting.stdout.close()
        assert b"Traceback" not in exporting.stderr.read()


# Pruning.


def archives(database: Path) -> list[Path]:
    return sorted(database.parent.glob(f"{database.name}.archive-*[0-9]"))


def kept_in(database: Path) -> set[str]:
    with opened(database) as connection:
        return {row[0] for row in connection.execute("SELECT id FROM reviews")}


def verified(folder: Path, home: Path, database: Path) -> Any:
    """With its archives: everything is compared."""
    given = [word for path in archives(database) for word in ("--archive", str(path))]
    ran = tandem(folder, home, "audit", "verify", "--json", *given)
    assert (ran.code, ran.json.get("problems")) == (0, []), ran
    assert ran.json["statistics_checked"]
    return ran.json


def test_a_prune_by_the_running_broker_moves_what_was_closed(
    process: BrokerProcess, own_home: Path, here: Here
) -> None:
    client = process.client()
    closed = {closed_review(client) for _ in range(30)}
    stays = client("create_review", **PROPOSAL)["review_id"]
    before = client("get_review_stats")
    moment = moment_after_all(client)
    ran = tandem(process.folder, own_home, "db", "prune", "--closed-before", moment, "--json")
    assert (ran.code, ran.err) == (0, "")
    (kept,) = archives(process.database)
    said = moment.replace("+00:00", "Z")
    assert ran.json == {"closed_before": said, "archive": kept.name, "reviews": 30}
    assert kept_in(kept) == closed
    assert [row["id"] for row in client("list_reviews", limit=500)["reviews"]] == [stays]
    assert client("get_review_stats") == before
    # Private, and no business of git's.
    assert kept.stat().st_mode & 0o777 == 0o600
    assert git(process.folder, "status", "--porcelain") == b""
    assert verified(process.folder, own_home, process.database)["reviews"] == 31
    again = tandem(process.folder, own_home, "db", "prune", "--closed-before", moment)
    assert (again.code, again.out) == (0, "nothing was closed before then; nothing was moved.\n")
    # Still whole when the broker has gone, and without the archive the statistics are not compared.
    assert process.stop() == 0
    alone = here(process.folder, "audit", "verify")
    assert alone.code == 0
    assert "150 events are in archives" in alone.out
    by_itself = here(process.folder, "audit", "verify", "--db", str(kept), "--json")
    assert (by_itself.code, by_itself.json["events"]) == (0, 150)


def test_a_prune_without_a_broker_moves_the_same(place: Place) -> None:
    with opened(place.database) as connection:
        ((last,),) = connection.execute("SELECT max(closed_at) FROM reviews").fetchall()
    moment = datetime.fromtimestamp((last + 1) / 1000, UTC).isoformat(timespec="milliseconds")
    until(lambda: datetime.now(UTC) > datetime.fromisoformat(moment))
    ran = place.tandem("db", "prune", "--closed-before", moment)
    (kept,) = archives(place.database)
    assert (ran.code, ran.out) == (0, f"30 reviews moved into {kept.name}, beside the database.\n")
    assert (len(kept_in(place.database)), len(kept_in(kept))) == (1, 30)
    assert kept.stat().st_mode & 0o777 == 0o600
    assert verified(place.repository, place.home, place.database)["events"] == 153
    with BrokerProcess(place.repository, home=place.home) as broker:
        stats = broker.client()("get_review_stats")
        assert (stats["total_reviews"], stats["by_status"]["closed"]) == (31, 30)
        # The database and all that stands beside it.
        assert git(place.repository, "status", "--porcelain") == b""


@pytest.mark.torture
def test_a_prune_under_load_loses_nothing_that_was_acknowledged(process: BrokerProcess, own_home: Path) -> None:
    """By the command and by two requests at once, while others go on and one looks whether all is whole."""
    answers: list[dict[str, Any]] = []

    def ask(closed_before: str) -> None:
        more = True
        while more:
            answers.append(post(process.port, {"closed_before": closed_before}))
            more = answers[-1].get("more", False)

    with Load(process.port) as load:
        for _ in range(2):
            load.more(20)
            moment = datetime.now(UTC).isoformat(timespec="milliseconds")
            asking = [threading.Thread(target=ask, args=(moment,)) for _ in range(2)]
            for thread in asking:
                thread.start()
            ran = tandem(process.folder, own_home, "db", "prune", "--closed-before", moment, "--json")
            assert ran.code == 0, ran.err
            for thread in asking:
                thread.join(30)
            verified(process.folder, own_home, process.database)
    assert all("error" not in answer for answer in answers), answers
    assert process.stop() == 0
    (kept,) = archives(process.database)
    assert len(kept_in(kept)) >= 20
    assert kept_in(process.database).isdisjoint(kept_in(kept))
    assert kept_in(process.database) | kept_in(kept) >= set(load.made)
    verified(process.folder, own_home, process.database)


@pytest.mark.torture
def test_a_broker_killed_in_the_middle_of_a_prune_loses_nothing(process: BrokerProcess, own_home: Path) -> None:
    made = set()
    # While the archive is made, while it is filled, while it is filled further.
    for growth in (1, 150_000, 1):
        client = process.client()
        for _ in range(60):
            review_id = client("create_review", **PROPOSAL)["review_id"]
            client("close_review", review_id=review_id)
            made.add(review_id)
        moment = moment_after_all(client)
        client.close()
        wanted = archived_bytes(process.database) + growth
        asking = threading.Thread(target=ask_and_be_cut_off, args=(process.port, moment))
        asking.start()
        until(lambda: archived_bytes(process.database) >= wanted or not asking.is_alive())  # noqa: B023
        process.stop(signal.SIGKILL)
        asking.join(30)
        process.start()
        verified(process.folder, own_home, process.database)
    assert kept_in(process.database).union(*map(kept_in, archives(process.database))) == made
    while post(process.port, {"closed_before": moment})["more"]:
        pass
    assert kept_in(process.database) == set()
    assert set().union(*map(kept_in, archives(process.database))) == made
    verified(process.folder, own_home, process.database)


def archived_bytes(database: Path) -> int:
    return sum(path.stat().st_size for path in archives(database))


def ask_and_be_cut_off(port: int, closed_before: str) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException):
        post(port, {"closed_before": closed_before})


def post(port: int, body: Any, *, content_type: str = "application/json") -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        text = body if isinstance(body, str) else json.dumps(body)
        connection.request("POST", "/api/db/prune", text, {"Content-Type": content_type})
        response = connection.getresponse()
        answer = json.loads(response.read())
    finally:
        connection.close()
    assert (response.status == 200) == ("error" not in answer)
    return answer


def test_a_request_that_says_no_moment_is_refused_and_nothing_moves(process: BrokerProcess) -> None:
    closed_review(process.client())
    bodies = [
        {}, {"closed_before": None}, {"closed_before": 5}, {"closed_before": "soon"}, {"closed_before": "2999-01-01"},
        [], "null", "", "{", "[" * 100_000,
    ]  # fmt: skip
    for body in bodies:
        assert post(process.port, body)["error"]["code"] == "invalid_argument", body
    past = {"closed_before": "2020-01-01"}
    # A form of another site can send this, and must not.
    for content_type in ("text/plain", "application/x-www-form-urlencoded"):
        assert post(process.port, past, content_type=content_type)["error"]["code"] == "invalid_argument"
    assert post(process.port, past)["reviews"] == 0
    assert archives(process.database) == []


@pytest.mark.parametrize("day", ["nonsense", "2999-01-01", ""])
def test_a_day_that_is_none_or_not_past_exits_2(place: Place, here: Here, day: str) -> None:
    ran = here(place.repository, "db", "prune", "--closed-before", day)
    assert ran.code == 2
    assert "closed_before" in ran.err
    assert archives(place.database) == []


def test_without_a_day_nothing_is_pruned(place: Place, here: Here) -> None:
    assert here(place.repository, "db", "prune").code == 2
    assert archives(place.database) == []


def test_pruning_without_a_database_is_told(tmp_path: Path, here: Here) -> None:
    repository = make_repository(tmp_path / "empty")
    ran = here(repository, "db", "prune", "--closed-before", "2020-01-01")
    assert ran.code == 3, ran
    assert "there is no database" in ran.err
    assert not (repository / ".planning").exists()


def test_a_broker_that_was_named_and_is_not_there_is_not_replaced_by_another_database(place: Place, here: Here) -> None:
    moment = datetime.now(UTC).isoformat(timespec="milliseconds")
    before = kept_in(place.database)
    ran = here(place.repository, "db", "prune", "--closed-before", moment, "--url", "http://127.0.0.1:1")
    assert kept_in(place.database) == before
    assert ran.code == 3, ran
