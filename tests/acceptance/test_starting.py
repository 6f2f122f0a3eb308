"""Starting: what is served and where, and one sentence with exit code 3 when it cannot be."""

import contextlib
import http.client
import json
import socket
import socketserver
import stat
import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from gsd_review_broker import __version__
from tests.support.local import PROPOSAL
from tests.support.processes import DATABASE, BrokerProcess, free_environment, make_repository, run_broker

PROGRAMS = Path(sys.executable).parent
NAME = Path(DATABASE).name


def healthz(port: int) -> dict[str, object]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/healthz")
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def refusal(folder: Path, home: Path, *arguments: str) -> str:
    """The one sentence of a start that must fail."""
    ended = run_broker(folder, home, "--port", "0", *arguments)
    assert ended.returncode == 3, ended.stderr
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1, ended.stderr
    return ended.stderr


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


def test_a_database_that_is_up_to_date_costs_no_import_of_the_migrations(process: BrokerProcess) -> None:
    """And one that is not does, or this test would prove nothing."""
    assert process.stop() == 0
    for database, imported in ((process.database, False), (process.database.with_name("new.sqlite3"), True)):
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
        assert "gsd_review_broker.store.sqlite" in modules
        assert ("alembic" in modules) is imported


# Whose port and whose database it is.


def test_a_port_that_another_broker_has_is_named_with_what_that_one_serves(
    process: BrokerProcess, tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert process.process is not None
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # that it asks past a proxy
    other = make_repository(tmp_path / "other")
    said = refusal(other, own_home, "--port", str(process.port))
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
    users = own_home / "data" / "gsd-review-broker"
    with (
        BrokerProcess(first, home=own_home) as one,
        BrokerProcess(second, home=own_home) as two,
        BrokerProcess(users, home=own_home, arguments=("--user",), database=NAME) as three,
    ):
        brokers = {str(first): one, str(second): two, "user": three}
        for serves, broker in brokers.items():
            assert healthz(broker.port)["serves"] == serves
            assert healthz(broker.port)["database"] == str(broker.database)
            assert broker.client()("broker_status")["serves"] == serves
            broker.client()("create_review", **PROPOSAL | {"intent": serves})
        for serves, broker in brokers.items():
            assert [review["intent"] for review in broker.client()("list_reviews")["reviews"]] == [serves]
