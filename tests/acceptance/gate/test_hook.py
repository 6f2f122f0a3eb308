"""The hook itself: how little it carries, and that a broker which does not answer cannot hold it up."""

import contextlib
import os
import socket
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gsd_review_broker.gate import database_file, hook
from tests.support.gated import Gated, gated
from tests.support.hostile_clone import lock_held, put_runtime_file
from tests.support.local import LocalBroker
from tests.support.processes import DATABASE, BrokerProcess
from tests.support.waiting import until

HEAVY = {"json", "re", "subprocess", "http.client", "socket", "asyncio", "dataclasses", "pathlib", "sqlite3", "logging"}


def modules_after(statement: str) -> set[str]:
    package = str(Path(hook.__file__).parents[2])
    program = f"import sys; sys.path.insert(0, {package!r}); {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_hook_imports_next_to_nothing() -> None:
    loaded = modules_after("from gsd_review_broker.gate.hook import main")
    assert loaded & HEAVY == set()
    own = {name for name in loaded if name.startswith("gsd_review_broker")}
    assert own == {
        "gsd_review_broker", "gsd_review_broker.gate", "gsd_review_broker.gate.hook",
        "gsd_review_broker.git", "gsd_review_broker.git.command",
    }  # fmt: skip


def test_the_answer_without_a_broker_imports_nothing_of_the_server() -> None:
    loaded = modules_after("import gsd_review_broker.gate.database_file")
    assert loaded & {"pydantic", "sqlalchemy", "mcp", "starlette", "uvicorn", "structlog", "cryptography"} == set()


def test_a_broker_that_takes_the_question_and_never_answers_is_given_up_on(tmp_path: Path) -> None:
    """The other side sees the hook hang up by itself; its patience is under a second."""
    assert hook.ANSWER_SECONDS < 1
    with gated(tmp_path, patience=None) as here, socket.create_server(("127.0.0.1", 0)) as silent:
        here.process.stop()
        put_runtime_file(here.folder, url=f"http://127.0.0.1:{silent.getsockname()[1]}")
        hung_up = threading.Event()

        def take() -> None:
            connection, _ = silent.accept()
            with connection:
                while connection.recv(65536):
                    pass
            hung_up.set()

        threading.Thread(target=take, daemon=True).start()
        here.stage(hello_txt="x\n")
        with lock_held(here.folder, os.getpid()):
            said = here.git("commit", "-m", "x")
        assert said.code != 0
        assert "The broker does not answer" in said.err
        assert hung_up.wait(10)


@pytest.mark.parametrize(
    ("piece", "patience", "why"),
    [
        # The length counts, however much time there is.
        pytest.param(b"x" * 65536, 60, "does not end", id="flood"),
        # All the time together counts. On a busy machine the last piece may come too late, which is the same.
        pytest.param(b"x", 0.2, "does not end|timed out", id="drip"),
    ],
)
def test_a_broker_that_never_stops_sending_is_given_up_on(piece: bytes, patience: float, why: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def send_on() -> None:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                while True:
                    connection.sendall(piece)

        thread = threading.Thread(target=send_on, daemon=True)
        thread.start()
        with pytest.raises(OSError, match=why):
            hook.post(("127.0.0.1", server.getsockname()[1]), "/api/gate/check", b"", patience=patience)
        thread.join(30)
        assert not thread.is_alive()


def test_a_runtime_file_is_believed_only_while_the_process_that_it_names_holds_the_lock(repository: Path) -> None:
    database = str(repository / DATABASE)
    put_runtime_file(repository, url="http://127.0.0.1:9")
    assert hook.address_of(database) is None
    with lock_held(repository, os.getpid()):
        assert hook.address_of(database) == ("127.0.0.1", 9)
        put_runtime_file(repository, url="http://[::1]:9")
        assert hook.address_of(database) == ("::1", 9)
    with lock_held(repository, 4711):
        assert hook.address_of(database) is None
    assert hook.address_of(database) is None


def test_a_runtime_file_that_others_can_read_or_that_names_another_machine_is_not_believed(repository: Path) -> None:
    database = str(repository / DATABASE)
    with lock_held(repository, os.getpid()):
        put_runtime_file(repository, url="http://192.0.2.1:80")
        assert hook.address_of(database) is None
        path = put_runtime_file(repository, url="http://127.0.0.1:9", mode=0o644)
        assert hook.address_of(database) is None
        path.rename(repository / "elsewhere")
        (repository / "elsewhere").chmod(0o600)
        path.symlink_to(repository / "elsewhere")
        assert hook.address_of(database) is None


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW approvals AS SELECT 1",
        "CREATE TRIGGER t AFTER INSERT ON approved_paths BEGIN DELETE FROM approved_paths; END",
        "ALTER TABLE reviewed_changes ADD COLUMN more",
        "CREATE TABLE more (x)",
        "UPDATE alembic_version SET version_num = '9999'",
        "DELETE FROM alembic_version",
        "DROP TABLE alembic_version",
    ],
)
async def test_a_database_that_somebody_altered_approves_nothing(broker: LocalBroker, statement: str) -> None:
    await broker.create()
    database = broker.database.with_name("copy")
    with (
        contextlib.closing(sqlite3.connect(broker.database)) as source,
        contextlib.closing(sqlite3.connect(database)) as copy,
    ):
        source.backup(copy)
        with database_file.opened(database, None) as kept:
            assert kept.approvals_on_path(b"x", 1) == []
        copy.execute(statement)
        copy.commit()
    with pytest.raises((ValueError, sqlite3.Error)), database_file.opened(database, None):
        pass


def test_a_commit_made_while_the_broker_is_down_is_recorded_later(tmp_path: Path) -> None:
    with gated(tmp_path, mode="warn") as here:
        here.stage(hello_txt="approved\n")
        review = here.approve()
        here.process.stop()
        here.must("commit", "-m", "approved")
        approved = here.head()
        here.must("commit", "--allow-empty", "-m", "empty")
        waiting = here.folder / ".git" / "tandem"
        until(lambda: len(list(waiting.glob("landed.*"))) == 2)
        with BrokerProcess(here.folder, home=here.home) as process:
            again = Gated(process, here.home)
            assert again.tandem("gate", "status")["commits"] == []
            assert again.landed(approved)["review_id"] == review
            assert list(waiting.glob("landed.*")) == []
            again.must("commit", "--allow-empty", "-m", "another")
            assert again.landed(again.head())["metadata"]["because"] == "empty"


def test_a_repository_that_was_moved_is_refused_until_the_gate_is_installed_again(tmp_path: Path) -> None:
    """Its configuration would not be found, and the mode would be the default: a warning."""
    with gated(tmp_path) as here:
        here.process.stop()
        moved = here.folder.rename(tmp_path / "moved")
        there = Gated(here.process, here.home, folder=moved)
        there.stage(hello_txt="x\n")
        refused = there.git("commit", "-m", "x")
        assert (refused.code != 0, "Next: tandem gate install" in refused.err) == (True, True), refused
        assert there.tandem.run("gate", "install").code == 0
        refused = there.git("commit", "-m", "x")
        assert (refused.code != 0, "without approval: hello.txt" in refused.err) == (True, True), refused
        moved.rename(here.folder)
