"""Files that came with a clone under the names of ours: none is written through, and none is believed."""

import json
import os
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gsd_review_broker import maintenance
from gsd_review_broker.errors import StartError
from gsd_review_broker.git.discovery import find_root, is_tracked, tracked_among
from gsd_review_broker.observe import logs
from gsd_review_broker.settings import config
from gsd_review_broker.settings.config import refuse_tracked
from gsd_review_broker.settings.locations import locate
from gsd_review_broker.settings.state_files import Database, state_files
from gsd_review_broker.store import verification
from tests.support.local import local_broker
from tests.support.processes import DATABASE, git, make_repository, run_broker
from tests.support.tandem import Tandem

SUFFIXES = ("", "-wal", "-shm", "-journal", ".lock", ".runtime.json", ".moved", ".unfinished")


def refusal(repository: Path, **flags: str) -> str:
    """Of the broker and of its clients: they agree."""
    with pytest.raises(StartError) as of_broker:
        config.load(root=repository, flags=flags, environment={})
    with pytest.raises(StartError) as of_client:
        locate(repository, db=flags.get("db"), config=None, environment={})
    assert str(of_broker.value) == str(of_client.value)
    return str(of_broker.value)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_link_under_one_of_our_names_is_refused_and_its_target_left(
    repository: Path, own_home: Path, tmp_path: Path, suffix: str
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    outside.chmod(0o644)
    path = repository / (DATABASE + suffix)
    path.parent.mkdir()
    path.symlink_to(outside)
    told = refusal(repository)
    assert told.startswith(f"{path} is a link, and the broker keeps a file of its own there; remove it, or ")
    assert (outside.read_text(), outside.stat().st_mode & 0o777) == ("mine", 0o644)
    path.unlink()
    path.symlink_to(tmp_path / "made")
    refusal(repository)
    path.unlink()
    os.mkfifo(path)
    assert "is not a file, and the broker keeps a file of its own there" in refusal(repository)


def test_a_planning_folder_that_is_a_link_is_refused_by_broker_and_clients(
    repository: Path, own_home: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (repository / ".planning").symlink_to(tmp_path / "elsewhere")
    ended = run_broker(repository, own_home, "--port", "0")
    assert (ended.returncode, list((tmp_path / "elsewhere").iterdir())) == (3, [])
    for told in (ended.stderr, Tandem(repository, own_home).run("list").err, refusal(repository)):
        assert f"{repository}/.planning is a link to '{tmp_path}/elsewhere'" in told
        assert "replace it by a folder, or use another database with --db" in told


def test_a_link_in_a_folder_of_the_path_is_refused_however_the_path_was_given(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (repository / "deep").symlink_to(tmp_path / "elsewhere")
    assert "deep is a link" in refusal(repository, db=str(repository / "deep" / "x.sqlite3"))


@pytest.mark.parametrize("place", [".git/x.sqlite3", ".GIT/x.sqlite3", "sub/.git/x.sqlite3", "git~1/x"])
def test_a_database_is_never_in_a_git_folder(repository: Path, place: str) -> None:
    (repository / ".planning").mkdir()
    (repository / ".planning" / "review-broker.json").write_text(json.dumps({"db": place}))
    assert "lies in a .git folder" in refusal(repository)
    (repository / ".planning" / "review-broker.json").unlink()
    assert "lies in a .git folder" in refusal(repository, db=str(repository / place))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_state_file_that_git_tracks_is_refused_with_what_to_do(repository: Path, suffix: str) -> None:
    database = Database(repository / DATABASE)
    path = repository / (DATABASE + suffix)
    refuse_tracked(database, repository)
    path.parent.mkdir()
    path.write_text("")
    refuse_tracked(database, repository)
    git(repository, "add", "-f", str(path))
    with pytest.raises(StartError, match="git rm --cached") as refused:
        refuse_tracked(database, repository)
    assert str(refused.value).startswith(f"git tracks {path}, or does not say")
    git(repository, "rm", "-q", "--cached", str(path))
    refuse_tracked(database, repository)


def test_the_broker_and_the_doctor_refuse_a_database_that_came_with_the_clone(repository: Path, own_home: Path) -> None:
    (repository / ".planning").mkdir()
    (repository / DATABASE).touch()
    git(repository, "add", "-f", DATABASE)
    ended = run_broker(repository, own_home, "--port", "0")
    assert (ended.returncode, "git rm --cached" in ended.stderr) == (3, True)
    said = Tandem(repository, own_home).run("doctor", "--json")
    [check] = [check for check in said.json["checks"] if check["name"] == "database"]
    assert (said.code, check["state"], "git tracks" in check["found"]) == (1, "red", True)
    assert Tandem(repository, own_home).run("audit", "verify").code == 3


# What git is asked, and what its silence means.


def linked(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (repository / ".planning").symlink_to(tmp_path / "elsewhere")


def a_submodule(repository: Path, tmp_path: Path) -> None:
    other = make_repository(tmp_path / "other", {"review-broker.json": "{}"})
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), ".planning")


def an_empty_submodule(repository: Path, tmp_path: Path) -> None:
    """In the index alone; its folder is an ordinary one."""
    head = git(repository, "rev-parse", "HEAD").decode().strip()
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{head},.planning")
    (repository / ".planning").mkdir()
    (repository / ".planning" / "review-broker.json").write_text("{}")


def a_repository_of_its_own(repository: Path, tmp_path: Path) -> None:
    make_repository(repository / ".planning", {"review-broker.json": "{}"})


def in_another_spelling(repository: Path, tmp_path: Path) -> None:
    """Where case does not count, it is the same file."""
    blob = git(repository, "hash-object", "-w", "--stdin", stdin=b"{}").decode().strip()
    git(repository, "update-index", "--add", "--cacheinfo", f"100644,{blob},.Planning/Review-Broker.json")


def a_damaged_index(repository: Path, tmp_path: Path) -> None:
    (repository / ".git" / "index").write_bytes(b"nonsense")


@pytest.mark.parametrize(
    "hide",
    [linked, a_submodule, an_empty_submodule, a_repository_of_its_own, in_another_spelling, a_damaged_index],
    ids=lambda hide: hide.__name__,
)
def test_whether_git_tracks_a_file_is_answered_yes_unless_git_says_no(
    repository: Path, tmp_path: Path, hide: Callable[[Path, Path], None]
) -> None:
    file = repository / ".planning" / "review-broker.json"
    assert is_tracked(repository, file) is False
    hide(repository, tmp_path)
    assert is_tracked(repository, file) is True


def test_outside_the_repository_nothing_is_known(repository: Path, tmp_path: Path) -> None:
    other = repository / "hello.txt"
    assert tracked_among(repository, [tmp_path / "x", other, repository / "new"]) == [tmp_path / "x", other]


# Where the root is.


def by_its_own_configuration(repository: Path, place: Path) -> None:
    git(repository, "config", "core.worktree", str(place))


@pytest.mark.parametrize("place", ["an empty folder", "another repository", "the folder above"])
def test_a_configuration_that_moves_the_work_tree_is_refused(repository: Path, tmp_path: Path, place: str) -> None:
    outside = tmp_path if place == "the folder above" else tmp_path / "outside"
    outside.mkdir(exist_ok=True)
    if place != "an empty folder":
        make_repository(outside, {"mine": "mine"})
    by_its_own_configuration(repository, outside)
    with pytest.raises(StartError, match=r"git config --unset core\.worktree"):
        find_root(repository)


def test_a_worktree_a_submodule_and_a_setting_that_changes_nothing_are_roots_as_before(
    repository: Path, tmp_path: Path
) -> None:
    git(repository, "worktree", "add", "-q", str(tmp_path / "linked"))
    assert find_root(tmp_path / "linked") == repository
    other = make_repository(tmp_path / "other")
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), "module")
    assert find_root(repository / "module") == repository / "module"
    by_its_own_configuration(repository, repository)
    (repository / "folder").mkdir()
    assert find_root(repository / "folder") == repository


# What a database may hold.


async def made(folder: Path) -> Path:
    async with local_broker(folder) as broker:
        await broker.create()
        return broker.database


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("CREATE TRIGGER t AFTER INSERT ON reviews BEGIN UPDATE reviews SET status = 'approved'; END", "trigger t"),
        ("CREATE VIEW v AS SELECT 1", "view v"),
        ("CREATE TABLE more (x)", "table more"),
        ("ALTER TABLE reviews ADD COLUMN extra TEXT", "table reviews"),
        ("CREATE INDEX i ON reviews (abs(version))", "index i"),
        ("DROP TABLE counters", "table counters"),
    ],
)
async def test_a_database_with_anything_that_we_did_not_make_is_refused(
    tmp_path: Path, statement: str, named: str
) -> None:
    database = await made(tmp_path)
    with sqlite3.connect(database) as connection:
        connection.execute(statement)
    connection.close()
    before = database.read_bytes()
    with pytest.raises(StartError, match="is not as the broker made it") as refused:
        await made(tmp_path)
    assert named in str(refused.value)
    assert database.read_bytes() == before


async def test_verify_and_export_refuse_a_database_that_somebody_altered(tmp_path: Path) -> None:
    database = await made(tmp_path)
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE VIEW v AS SELECT 1")
    connection.close()
    with pytest.raises(StartError, match="is not as the broker made it: view v is"):
        maintenance.verify(Database(database))
    with pytest.raises(StartError, match="is not as the broker made it: view v is"):
        list(maintenance.export(Database(database)))


async def test_verify_and_export_distrust_the_schema(tmp_path: Path) -> None:
    with verification.opened(await made(tmp_path)) as connection:
        assert connection.execute("PRAGMA trusted_schema").fetchone() == (0,)


async def test_every_connection_distrusts_the_schema(tmp_path: Path) -> None:
    async with local_broker(tmp_path) as broker:
        for connection in broker.store._connections:
            assert connection.execute("PRAGMA trusted_schema").fetchone() == (0,)
            assert connection.execute("PRAGMA cell_size_check").fetchone() == (1,)


# Logs.


def test_log_files_are_their_owners_alone_and_are_not_written_through_a_link(tmp_path: Path) -> None:
    outside, log = tmp_path / "outside", tmp_path / "log"
    outside.write_text("mine")
    log.write_text("")
    log.chmod(0o644)
    logs.configure(level="info", form="json", file=log)
    assert log.stat().st_mode & 0o777 == 0o600
    log.unlink()
    log.symlink_to(outside)
    with pytest.raises(StartError, match="is a link"):
        logs.configure(level="info", form="json", file=log)
    assert outside.read_text() == "mine"


def test_the_log_of_a_broker_in_the_background_is_its_owners_alone(repository: Path, own_home: Path) -> None:
    tandem = Tandem(repository, own_home, BROKER_PORT="0")
    try:
        folder = Path(tandem("up")["log"]).parent
        assert {path.name.split(".")[-1]: path.stat().st_mode & 0o777 for path in folder.iterdir()} == dict.fromkeys(
            ("log", "pid", "lock"), 0o600
        )
    finally:
        tandem.run("down", "--force")


def test_a_named_pipe_as_configuration_holds_nobody_up(repository: Path, own_home: Path) -> None:
    """Opened for reading, it would wait for a writer for ever."""
    (repository / ".planning").mkdir()
    os.mkfifo(repository / ".planning" / "review-broker.json")
    try:
        assert Tandem(repository, own_home).run("list").code == 3
    except subprocess.TimeoutExpired:
        pytest.fail("the command waits for the pipe")


def test_every_state_file_is_known(repository: Path) -> None:
    assert state_files(Database(repository / DATABASE)) == [repository / (DATABASE + suffix) for suffix in SUFFIXES]
