"""Which broker a client believes: one that runs on this database and knows the secret of its runtime file."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from gsd_review_broker.client import Target, UnreachableError, connect
from gsd_review_broker.client.connection import Connection
from gsd_review_broker.processes import send_signal, start_of
from gsd_review_broker.settings.runtime_file import is_challenge, new_challenge, proof_of
from tests.support.hostile_clone import SECRET, Impostor, lock_held, put_runtime_file
from tests.support.processes import BrokerProcess
from tests.support.tandem import Tandem


@pytest.fixture
def impostor(repository: Path) -> Generator[Impostor]:
    with Impostor() as server:
        server.health["serves"] = str(repository)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def refusal(repository: Path) -> str:
    with pytest.raises(UnreachableError) as refused:
        connect(Target.of(repository, environment={}), token="tdm_secret")
    return refused.value.message


def test_a_runtime_file_without_a_held_lock_is_not_believed(repository: Path, impostor: Impostor) -> None:
    put_runtime_file(repository, url=impostor.url)
    assert refusal(repository) == f"no broker is running for {repository}"
    assert impostor.requests == []


@pytest.mark.parametrize(
    ("values", "mode", "why"),
    [
        ({"url": "http://192.0.2.1:80"}, 0o600, "does not name an address of this machine"),
        ({"url": "https://127.0.0.1:80"}, 0o600, "does not name an address of this machine"),
        ({"url": "http://127.0.0.1.example.org:80"}, 0o600, "does not name an address of this machine"),
        ({"url": "http://a@127.0.0.1:80"}, 0o600, "does not name an address of this machine"),
        ({"url": "http://127.0.0.1:99999"}, 0o600, "does not name an address of this machine"),
        ({"url": "http://127.0.0.1:80", "pid": -1}, 0o600, "does not name a process"),
        ({"url": "http://127.0.0.1:80", "pid": 1}, 0o600, "does not name a process"),
        ({"url": "http://127.0.0.1:80", "pid": True}, 0o600, "does not name a process"),
        ({"url": "http://127.0.0.1:80", "pid": 4712}, 0o600, "names pid 4712, and the database is held by pid"),
        ({"url": "http://127.0.0.1:80", "secret": ""}, 0o600, "has no secret"),
        ({"url": "http://127.0.0.1:80"}, 0o644, "can be read or changed by others"),
    ],
)
def test_a_runtime_file_that_no_broker_wrote_is_refused_with_a_reason(
    repository: Path, values: dict[str, Any], mode: int, why: str
) -> None:
    put_runtime_file(repository, mode=mode, **values)
    with lock_held(repository, os.getpid()):
        assert why in refusal(repository)


@pytest.mark.parametrize("proof", ["f" * 64, "", None, 5, "é", "not the pid"])
def test_whoever_does_not_know_the_secret_gets_no_token(repository: Path, impostor: Impostor, proof: Any) -> None:
    """Another user took the port after a crash, while a third process holds the lock."""
    impostor.health |= {"pid": os.getpid(), "proof": proof}
    put_runtime_file(repository, url=impostor.url)
    with lock_held(repository, os.getpid()):
        assert "it does not know the secret" in refusal(repository)
    assert [path.split("?")[0] for path, _ in impostor.requests] == ["/healthz"]
    assert not [name for _, headers in impostor.requests for name in headers if name.lower() == "authorization"]


def test_a_proof_is_for_one_challenge_one_secret_and_one_process() -> None:
    challenge = new_challenge()
    proof = proof_of(SECRET, challenge, 7)
    assert proof == proof_of(SECRET, challenge, 7)
    assert len({proof, proof_of(SECRET, new_challenge(), 7), proof_of("6" * 64, challenge, 7)}) == 3
    assert proof_of(SECRET, challenge, 8) != proof
    assert is_challenge(challenge)
    assert not [text for text in ("", "ab", "A" * 64, "a" * 129, "a" * 64 + "\n") if is_challenge(text)]


def test_a_broker_proves_itself_and_only_to_whoever_asks(process: BrokerProcess) -> None:
    announced = json.loads(process.runtime_file.read_text())
    connection = Connection(announced["url"])
    challenge = new_challenge()
    health = connection.get(f"/healthz?challenge={challenge}")
    assert health["proof"] == proof_of(announced["secret"], challenge, announced["pid"])
    assert "proof" not in connection.get("/healthz")
    assert "proof" not in connection.get("/healthz?challenge=short")
    assert announced["secret"] not in json.dumps(health)
    connection.close()
    assert process.runtime_file.stat().st_mode & 0o777 == 0o600


def test_after_a_crash_whoever_has_the_port_is_not_our_broker(process: BrokerProcess, own_home: Path) -> None:
    """The runtime file and the lock file are still there, and both name a process that is gone."""
    process.stop(signal.SIGKILL)
    said = Tandem(process.folder, own_home).run("status", BROKER_TOKEN="tdm_secret")
    assert (said.code, "no broker is running" in said.err) == (3, True)


@pytest.mark.parametrize("pid", [-1, 0, 1])
def test_down_never_signals_a_pid_that_stands_for_many(pid: int) -> None:
    assert send_signal(pid, start_of(pid) if pid > 0 else None, signal.SIGCONT) is False


def test_a_number_that_another_process_has_by_now_is_not_signalled() -> None:
    with subprocess.Popen(["sleep", "60"]) as innocent:
        assert send_signal(innocent.pid, "another start", signal.SIGKILL) is False
        assert innocent.poll() is None
        assert send_signal(innocent.pid, start_of(innocent.pid), signal.SIGKILL) is True
        assert innocent.wait() == -signal.SIGKILL
    assert send_signal(innocent.pid, None, signal.SIGKILL) is False


def test_down_kills_nobody_whom_a_clone_names(repository: Path, own_home: Path, impostor: Impostor) -> None:
    """The clone's file names a process, and whoever answers at its address says that it is that process."""
    with subprocess.Popen(["sleep", "60"]) as innocent:
        impostor.health["pid"] = innocent.pid
        put_runtime_file(repository, url=impostor.url, pid=innocent.pid, process_start=start_of(innocent.pid))
        said = Tandem(repository, own_home).run("down", "--force")
        assert (said.code, innocent.poll()) == (0, None)
        assert "no broker is running" in said.out
        assert impostor.requests == []
        innocent.kill()
