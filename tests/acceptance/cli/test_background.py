"""`tandem up`, `down` and `status`: one broker for each user and database, whoever starts it and however often."""

import json
import os
import pty
import signal
import socket
import subprocess
from collections.abc import Generator
from pathlib import Path

import psutil
import pytest

from gsd_review_broker.cli.broker import background, ports
from gsd_review_broker.cli.commands import serve
from gsd_review_broker.client import Target
from gsd_review_broker.settings import config, locations
from tests.support.processes import BrokerProcess, make_repository
from tests.support.tandem import PROGRAM, Tandem


@pytest.fixture
def tandem(repository: Path, own_home: Path) -> Generator[Tandem]:
    """Whatever a test leaves running is ended with it."""
    tandem = Tandem(repository, own_home, BROKER_PORT="0")
    yield tandem
    tandem.run("down", "--force")


def test_up_starts_once_and_down_ends_it(tandem: Tandem, repository: Path, own_home: Path) -> None:
    first = tandem("up")
    assert first["started"] is True
    assert (first["serves"], Path(first["log"]).exists()) == (str(repository), True)
    assert tandem("up") == {**first, "started": False}
    said = tandem.run("up")
    assert said.out == f"broker runs: {first['url']} serves {repository} (pid {first['pid']})\n"
    process = psutil.Process(first["pid"])
    assert os.getsid(first["pid"]) == first["pid"]
    status = tandem("status")
    assert (status["pid"], status["url"], status["log"]) == (first["pid"], first["url"], first["log"])
    assert tandem("down") == {"ended": True, "pid": first["pid"]}
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    assert tandem("down") == {"ended": False, "pid": None}
    assert tandem.run("status").code == 3
    assert "broker_ready" in Path(first["log"]).read_text()


def test_up_tells_what_the_broker_leaves_out_of_its_settings(tandem: Tandem, repository: Path) -> None:
    file = repository / ".planning" / "review-broker.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text("{")
    for verb in ("started", "runs"):
        said = tandem.run("up")
        assert (said.code, f"broker {verb}" in said.out) == (0, True), said
        assert f"problem: {file}: line 1" in said.err, said
        assert f"Fix or remove {file}." in said.err, said


def test_ten_at_the_same_moment_start_one_broker(tandem: Tandem) -> None:
    starters = [tandem.start("up", "--json") for _ in range(10)]
    answers = []
    for starter in starters:
        with starter:
            out, err = starter.communicate(timeout=60)
            assert starter.returncode == 0, err
            answers.append(json.loads(out))
    assert len({answer["pid"] for answer in answers}) == 1
    assert [answer["started"] for answer in answers].count(True) == 1


def test_a_broker_outlives_the_terminal_that_started_it(tandem: Tandem, repository: Path) -> None:
    main, other = pty.openpty()
    with subprocess.Popen(
        [PROGRAM, "up"], cwd=repository, env=tandem.environment, stdin=other, stdout=other, stderr=other,
        start_new_session=True,
    ) as starting:  # fmt: skip
        assert starting.wait(30) == 0
    os.close(other)
    os.close(main)
    status = tandem("status")
    held = [file.path for file in psutil.Process(status["pid"]).open_files()]
    assert not [path for path in held if path.startswith("/dev/pts")]
    assert psutil.Process(status["pid"]).terminal() is None


def test_status_says_what_runs_and_what_waits(tandem: Tandem, repository: Path) -> None:
    started = tandem("up")
    for _ in range(2):
        tandem("propose", "-m", "x", "--no-diff")
    tandem("propose", "-m", "x", "--no-diff", "--agent-type", "gsd-planner")
    said = tandem.run("status").out
    for expected in (started["url"], str(repository), started["database"], "3 reviews (1 critical, 2 normal)"):
        assert expected in said
    assert tandem("status")["queue"] == {"critical": 1, "normal": 2, "low": 0}


def test_two_repositories_have_two_brokers(tandem: Tandem, own_home: Path, tmp_path: Path) -> None:
    other = Tandem(make_repository(tmp_path / "other"), own_home, BROKER_PORT="0")
    try:
        assert tandem("up")["pid"] != other("up")["pid"]
        assert other("down")["ended"] is True
        assert tandem.run("status").code == 0
    finally:
        other.run("down", "--force")


@pytest.fixture
def taken() -> Generator[int]:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def test_a_chosen_port_that_is_taken_is_told_in_a_sentence(repository: Path, own_home: Path, taken: int) -> None:
    said = Tandem(repository, own_home).run("up", "--port", str(taken))
    assert said.code == 3
    assert f"port {taken} of 127.0.0.1 cannot be used" in said.err
    assert said.err.count("\n") == 1


def test_the_usual_port_that_is_taken_is_no_obstacle(
    tandem: Tandem, repository: Path, own_home: Path, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients find it by its runtime file. The project keeps the port that it has instead."""
    monkeypatch.setattr(locations, "DEFAULT_PORT", taken)
    target = Target.of(repository, environment={})
    started = background.start(target)
    assert started.is_new
    url = started.broker.connection.url
    assert not url.endswith(f":{taken}")
    started.broker.connection.close()
    assert tandem("status")["pid"] == started.broker.pid
    background.stop(started.broker, target.locations.database)
    assert Tandem(repository, own_home)("up")["url"] == url


@pytest.mark.parametrize("chosen", [None, 4321])
def test_serve_takes_the_port_that_up_would_take_unless_one_is_chosen(
    repository: Path, own_home: Path, taken: int, chosen: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locations, "DEFAULT_PORT", taken)
    configuration = config.load(root=repository, flags={"port": chosen})
    port = serve.with_a_port(configuration).settings.port
    if chosen:
        assert port == chosen
    else:
        assert port in list(ports.candidates(configuration.database))[1:]


def test_a_configuration_that_is_wrong_is_told_at_once(tandem: Tandem, repository: Path) -> None:
    (repository / ".planning").mkdir()
    (repository / ".planning" / "review-broker.json").write_text('{"max_rounds": 0}')
    said = tandem.run("up")
    assert said.code == 3
    assert "max_rounds" in said.err
    assert said.out == ""


def test_a_broker_that_was_killed_is_started_anew(tandem: Tandem) -> None:
    first = tandem("up")
    os.kill(first["pid"], signal.SIGKILL)
    second = tandem("up")
    assert second["started"] is True
    assert second["pid"] != first["pid"]


def test_down_ends_a_broker_that_was_started_by_hand(process: BrokerProcess) -> None:
    tandem = Tandem(process.folder, process.home)
    assert process.process is not None
    assert tandem("up")["pid"] == process.process.pid
    assert tandem("down")["ended"] is True
    assert process.process.wait(10) == 0


def test_another_database_is_another_broker(tandem: Tandem, tmp_path: Path) -> None:
    database = str(tmp_path / "own.sqlite3")
    try:
        started = tandem("up", "--db", database)
        assert started["database"] == database
        assert tandem.run("status").code == 3
        assert tandem("status", "--db", database)["pid"] == started["pid"]
        assert tandem("list", BROKER_DB=database)["reviews"] == []
    finally:
        tandem.run("down", "--db", database, "--force")


def test_the_state_folder_is_the_users_alone(tandem: Tandem) -> None:
    folder = Path(tandem("up")["log"]).parent
    assert folder.stat().st_mode & 0o077 == 0


def test_in_a_folder_that_is_gone_every_command_says_so(tmp_path: Path, own_home: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    environment = Tandem(folder, own_home).environment
    script = f'rmdir "{folder}" && for command in list up setup; do "{PROGRAM}" $command; echo $?; done'
    done = subprocess.run(
        ["sh", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["7", "7", "7"], done
    told = "tandem: not_found: the folder that you are in does not exist any more\nGo to another one.\n"
    assert done.stderr == told * 3
