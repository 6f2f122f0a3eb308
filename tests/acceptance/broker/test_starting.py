"""Starting: what is served and where, and one sentence with exit code 3 when it cannot be."""

import contextlib
import http.client
import json
import socket
import socketserver
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from gsd_review_broker import __version__
from gsd_review_broker.git.discovery import exclude_from_git, find_root
from tests.support.local import PROPOSAL
from tests.support.mcp import ToolError
from tests.support.processes import DATABASE, BrokerProcess, free_environment, git, make_repository, run_broker
from tests.support.waiting import PATIENCE

PROGRAMS = Path(sys.executable).parent
NAME = Path(DATABASE).name


def healthz(port: int) -> dict[str, object]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("GET", "/healthz")
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def refusal(folder: Path, home: Path, *arguments: str) -> str:
    """The one sentence of a start that fails."""
    done = run_broker(folder, home, "--port", "0", *arguments)
    assert done.returncode == 3, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# How it is started.


@pytest.mark.parametrize(
    "command",
    [
        [str(PROGRAMS / "gsd-review-broker")],
        [str(PROGRAMS / "tandem"), "serve"],
        [sys.executable, "-m", "gsd_review_broker"],
    ],
    ids=["gsd-review-broker", "tandem serve", "python -m"],
)
def test_every_command_starts_the_same_broker(repository: Path, own_home: Path, command: list[str]) -> None:
    environment = free_environment(own_home)
    with subprocess.Popen(
        [*command, "--port", "0", "--log-format", "json"],
        cwd=repository,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        ready = json.loads(process.stderr.readline())
        assert (ready["event"], ready["serves"]) == ("broker_ready", str(repository))
        found = json.loads((repository / f"{DATABASE}.runtime.json").read_text())
        assert {key: found[key] for key in ("url", "pid", "version", "serves")} == {
            "url": ready["url"],
            "pid": process.pid,
            "version": __version__,
            "serves": str(repository),
        }
        port = int(found["url"].rpartition(":")[2])
        health = healthz(port)
        assert {key: health[key] for key in ("status", "version", "pid", "serves")} == {
            "status": "ok",
            "version": __version__,
            "pid": process.pid,
            "serves": str(repository),
        }
        process.terminate()
        assert process.wait(10) == 0
    assert not (repository / f"{DATABASE}.runtime.json").exists()


@pytest.mark.parametrize("name", ["gsd-review-broker", "tandem"])
def test_every_command_tells_its_version(own_home: Path, name: str) -> None:
    said = subprocess.run(
        [PROGRAMS / name, "--version"], env=free_environment(own_home), capture_output=True, text=True, check=True
    )
    assert said.stdout == f"{name} {__version__}\n"


# Each of these would be a good part of a start.
# Pygments is used by the pages' highlighting alone; structlog imports it with rich, which tools for developers install.
LATER = ("mcp", "mcp_types", "alembic", "jinja2", "gsd_review_broker.web.diff.highlighting", "opentelemetry")


def test_a_start_imports_nothing_that_only_some_calls_need(process: BrokerProcess) -> None:
    """Neither with a database that is up to date nor with a new one."""
    assert process.stop() == 0
    for database in (process.database, process.database.with_name("new.sqlite3")):
        with subprocess.Popen(
            [sys.executable, "-X", "importtime", "-m", "gsd_review_broker", "--port", "0", "--db", database],
            cwd=process.folder,
            env=free_environment(process.home),
            stderr=subprocess.PIPE,
            text=True,
        ) as again:
            assert again.stderr is not None
            lines: list[str] = []
            for line in again.stderr:
                lines.append(line)
                if "broker_ready" in line:
                    break
            again.terminate()
            again.communicate()
        modules = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}
        assert {"gsd_review_broker.store.sqlite_store", "sqlalchemy", "pydantic"} <= modules
        assert [name for name in LATER if name in modules] == []


def test_plain_calls_are_answered_without_the_sdk_and_the_first_other_request_imports_it(
    repository: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    # A fork has everything imported.
    monkeypatch.setenv("TANDEM_TEST_EXEC", "1")
    with BrokerProcess(repository, home=own_home) as broker:
        client = broker.client()
        review_id = client("create_review", **PROPOSAL)["review_id"]
        client("claim_review", review_id=review_id, reviewer_id="codex")
        client("submit_verdict", review_id=review_id, reviewer_id="codex", verdict="approved")
        with pytest.raises(ToolError):
            client("close_review", review_id="nothing")
        assert "mcp_types" not in broker.output()
        assert "create_review" in {tool["name"] for tool in client.tools()}
        assert "mcp_types" in broker.output()


# Whose port and whose database it is.


def test_a_port_that_another_broker_has_is_named_with_what_that_one_serves(
    process: BrokerProcess, tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert process.process is not None
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # that it asks past a proxy
    other = make_repository(tmp_path / "other")
    ended = run_broker(other, own_home, "--port", str(process.port))
    said = ended.stderr
    assert (ended.returncode, ended.stdout, said.count("\n")) == (3, "", 1)
    assert f"port {process.port}" in said
    assert f"pid {process.process.pid}" in said
    assert f"serves {process.folder}" in said
    assert not (other / DATABASE).exists()


class _Speaks(socketserver.BaseRequestHandler):
    said = b""

    def handle(self) -> None:
        self.request.sendall(self.said)


@contextlib.contextmanager
def program_that_says(said: bytes) -> Generator[int]:
    class Speaks(_Speaks):
        pass

    Speaks.said = said
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Speaks) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.0\r\n",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
    ],
    ids=["nothing", "ssh", "another page", "other JSON"],
)  # fmt: skip
def test_a_port_that_another_program_has_is_told_whatever_it_speaks(
    repository: Path, own_home: Path, said: bytes
) -> None:
    with program_that_says(said) as port:
        told = refusal(repository, own_home, "--port", str(port))
    assert f"port {port} of 127.0.0.1 cannot be used" in told
    assert "pid" not in told


def test_a_port_that_never_answers_does_not_hold_up_the_refusal(repository: Path, own_home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert f"port {port}" in refusal(repository, own_home, "--port", str(port))


def test_a_database_that_another_broker_has_is_refused_with_its_pid(process: BrokerProcess, own_home: Path) -> None:
    assert process.process is not None
    said = refusal(process.folder, own_home)
    assert f"pid {process.process.pid}" in said
    assert str(process.database) in said
    assert healthz(process.port)["status"] == "ok"
    assert process.runtime_file.exists()


def test_two_repositories_and_the_user_have_brokers_beside_each_other(tmp_path: Path, own_home: Path) -> None:
    first, second = make_repository(tmp_path / "first"), make_repository(tmp_path / "second")
    users = f"data/gsd-review-broker/{NAME}"
    with (
        BrokerProcess(first, home=own_home) as one,
        BrokerProcess(second, home=own_home) as two,
        BrokerProcess(own_home, home=own_home, arguments=("--user",), database=users) as three,
    ):
        brokers = {str(first): one, str(second): two, "user": three}
        for serves, broker in brokers.items():
            assert healthz(broker.port)["serves"] == serves
            assert healthz(broker.port)["database"] == str(broker.database)
            assert broker.client()("broker_status")["serves"] == serves
            broker.client()("create_review", **PROPOSAL | {"intent": serves})
        for serves, broker in brokers.items():
            assert [review["intent"] for review in broker.client()("list_reviews")["reviews"]] == [serves]


# A database that cannot be used.


def test_a_folder_in_the_databases_place_is_refused_and_left_as_it_is(repository: Path, own_home: Path) -> None:
    folder = repository / "folder"
    folder.mkdir(mode=0o755)
    (folder / "mine").write_text("mine")
    said = refusal(repository, own_home, "--db", str(folder))
    assert str(folder) in said
    assert mode(folder) == 0o755
    assert (folder / "mine").read_text() == "mine"


@pytest.mark.parametrize(
    "content",
    [b"somebody's notes\n" * 100, b"SQLite format 3\0" + b"x" * 5000],
    ids=["no database", "damaged header"],
)
def test_a_damaged_database_is_refused_kept_and_how_to_restore_it_is_told(
    repository: Path, own_home: Path, content: bytes
) -> None:
    database = repository / DATABASE
    database.parent.mkdir()
    database.write_bytes(content)
    said = refusal(repository, own_home)
    assert str(database) in said
    assert "backup" in said
    assert ".recover" in said
    assert database.read_bytes() == content


def test_a_database_of_a_newer_broker_is_refused_and_kept(repository: Path, own_home: Path) -> None:
    database = repository / DATABASE
    database.parent.mkdir()
    with contextlib.closing(sqlite3.connect(database)) as newer:
        newer.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
        newer.execute("INSERT INTO alembic_version VALUES ('9999')")
        newer.commit()
    said = refusal(repository, own_home)
    assert "schema 9999" in said
    assert "newer" in said
    with contextlib.closing(sqlite3.connect(database)) as kept:
        tables = [name for (name,) in kept.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        assert tables == ["alembic_version"]
        assert kept.execute("SELECT version_num FROM alembic_version").fetchall() == [("9999",)]


def test_a_folder_that_cannot_be_made_is_told(repository: Path, own_home: Path) -> None:
    assert "hello.txt" in refusal(repository, own_home, "--db", str(repository / "hello.txt" / "x.sqlite3"))


# A wrong configuration: all of it in tests/unit/test_config.py.


def test_a_wrong_configuration_is_refused_with_file_key_and_what_is_allowed(repository: Path, own_home: Path) -> None:
    file = repository / ".planning" / "review-broker.json"
    file.parent.mkdir()
    for content, said in {
        '{"prot": 1}': "prot: unknown setting; allowed are host, port",
        '{"max_rounds": 0}': "max_rounds: input should be greater than or equal to 1",
        '{"fence": 5}': "fence: input should be 'strict' or 'managed'",
        '{"host": "0.0.0.0"}': "allowed are 127.0.0.1, localhost and ::1",
    }.items():
        file.write_text(content)
        told = refusal(repository, own_home)
        assert f"{file}: " in told
        assert said in told
    assert not (repository / DATABASE).exists()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
def test_an_address_that_others_reach_is_refused(repository: Path, own_home: Path, host: str) -> None:
    assert "allowed are 127.0.0.1, localhost and ::1" in refusal(repository, own_home, "--host", host)
    assert not (repository / DATABASE).exists()


# What it leaves on the disk.


def test_its_files_are_their_owners_alone(process: BrokerProcess) -> None:
    process.client()("create_review", **PROPOSAL)
    files = {path.name.removeprefix(NAME): mode(path) for path in process.database.parent.iterdir()}
    assert files == dict.fromkeys(("", "-wal", "-shm", ".lock", ".runtime.json"), 0o600)
    assert mode(process.database.parent) == 0o700


def test_a_folder_that_was_there_keeps_its_mode_and_a_database_that_all_could_read_does_not(
    repository: Path, own_home: Path
) -> None:
    folder = (repository / DATABASE).parent
    folder.mkdir()
    folder.chmod(0o755)
    (folder / NAME).touch()
    (folder / NAME).chmod(0o644)
    with BrokerProcess(repository, home=own_home):
        assert mode(folder) == 0o755
        assert {mode(path) for path in folder.iterdir()} == {0o600}


def test_git_sees_nothing_of_it_in_the_repository_and_its_worktrees(repository: Path, own_home: Path) -> None:
    exclude = repository / ".git" / "info" / "exclude"
    exclude.write_text("mine")
    linked = repository.parent / "linked"
    git(repository, "worktree", "add", "-q", str(linked))
    with BrokerProcess(repository, home=own_home) as broker:
        broker.client()("create_review", **PROPOSAL)
        assert broker.database.exists()
        for folder in (repository, linked):
            assert git(folder, "status", "--porcelain") == b""
    lines = exclude.read_text().splitlines()
    assert lines == ["mine", f"/{DATABASE}*"]
    exclude_from_git(repository, lines[1])
    assert exclude.read_text().splitlines() == lines
    assert not (repository / ".gitignore").exists()


# What is served.


def test_in_a_linked_worktree_it_serves_the_repository(repository: Path, own_home: Path) -> None:
    linked = repository.parent / "linked"
    git(repository, "worktree", "add", "-q", str(linked))
    (linked / "deep").mkdir()
    broker = BrokerProcess(linked / "deep", home=own_home, database=f"../../{repository.name}/{DATABASE}")
    with broker:
        assert healthz(broker.port)["serves"] == str(repository)
        assert git(linked, "status", "--porcelain") == b""
        assert not (linked / ".planning").exists()


def test_the_root_is_the_main_work_tree_by_gits_own_word(repository: Path, tmp_path: Path) -> None:
    (repository / "folder").mkdir()
    linked, bare, of_bare = tmp_path / "linked", tmp_path / "bare.git", tmp_path / "of-bare"
    apart, outer = tmp_path / "apart", make_repository(tmp_path / "outer")
    git(repository, "worktree", "add", "-q", str(linked))
    git(tmp_path, "clone", "-q", "--bare", str(repository), str(bare))
    git(bare, "worktree", "add", "-q", str(of_bare))
    git(tmp_path, "init", "-q", "--separate-git-dir", str(tmp_path / "elsewhere"), str(apart))
    git(outer, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(repository), "inner")
    assert {
        folder: find_root(folder) for folder in (repository / "folder", linked, of_bare, apart, outer / "inner")
    } == {
        repository / "folder": repository,
        linked: repository,
        of_bare: of_bare,
        apart: apart,
        outer / "inner": outer / "inner",
    }
    assert find_root(tmp_path) is None
    assert find_root(bare) is None


def test_outside_any_repository_it_is_the_users_broker(tmp_path: Path, own_home: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    database = f"../home/data/gsd-review-broker/{NAME}"
    with BrokerProcess(outside, home=own_home, database=database) as broker:
        assert healthz(broker.port)["serves"] == "user"
        assert broker.client()("broker_status")["serves"] == "user"
        assert list(outside.iterdir()) == []
        assert mode(broker.database.parent) == 0o700


@pytest.mark.parametrize("consent", [None, "true", "false"])
def test_a_pool_that_came_with_the_repository_needs_the_users_word(
    repository: Path, own_home: Path, consent: str | None
) -> None:
    file = repository / ".planning" / "review-broker.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"reviewer_pool": {"agent": "codex"}}))
    git(repository, "add", "-f", str(file))
    environment = free_environment(own_home) | ({"BROKER_REVIEWER_POOL__ENABLED": consent} if consent else {})
    process = subprocess.Popen(
        [sys.executable, "-m", "gsd_review_broker", "--port", "0"],
        cwd=repository, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout is not None
    said = b""
    while b"broker_ready" not in said:
        said += process.stdout.readline()
    process.terminate()
    said += process.communicate(timeout=PATIENCE)[0]
    assert (b"pool_on" in said) is (consent == "true")
    # The broker starts all the same, and says what to do.
    assert (b"tandem pool enable --scope user" in said) is (consent is None)


@pytest.mark.skipif(sys.platform == "win32", reason="the limit is of POSIX")
def test_a_disk_that_is_full_at_the_start_is_told_in_a_sentence(repository: Path, own_home: Path) -> None:
    """The operating system refuses every write to a file."""
    import resource

    ended = subprocess.run(
        [sys.executable, "-m", "gsd_review_broker", "--port", "0"],
        cwd=repository, env=free_environment(own_home), capture_output=True, text=True, check=False, timeout=PATIENCE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY)),
    )  # fmt: skip
    assert (ended.returncode, "Traceback" in ended.stderr) == (3, False)
    assert "look at the space on the disk" in ended.stderr
