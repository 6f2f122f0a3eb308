"""`tandem doctor`, `tandem completion`, `tandem pool enable`: around the reviews."""

import contextlib
import json
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gsd_review_broker import __version__
from tests.support.local import PROPOSAL
from tests.support.processes import BrokerProcess
from tests.support.tandem import PROGRAM, Tandem


def checks(tandem: Tandem, *arguments: str, **environment: str) -> tuple[int, dict[str, dict[str, str]]]:
    said = tandem.run("doctor", "--json", *arguments, **environment)
    found = said.json
    assert set(found) == {"ok", "checks"}
    assert all(set(check) == {"name", "state", "found", "hint"} for check in found["checks"])
    return said.code, {check["name"]: check for check in found["checks"]}


def test_a_healthy_place_is_green_and_exits_0(process: BrokerProcess) -> None:
    tandem = Tandem(process.folder, process.home)
    code, found = checks(tandem)
    assert code == 0
    assert {"python", "git", "sqlite", "configuration", "database", "broker", "reviewer programs"} <= set(found)
    assert found["broker"]["state"] == "green"
    assert str(process.port) in found["broker"]["found"]
    assert {check["state"] for check in found.values()} <= {"green", "yellow"}
    said = tandem.run("doctor")
    assert (said.code, said.out.splitlines()[0].split()[:2]) == (0, ["ok", "python"])


def test_without_a_broker_it_says_how_to_start_one(repository: Path, own_home: Path) -> None:
    code, found = checks(Tandem(repository, own_home, BROKER_PORT="0"))
    assert code == 0
    assert found["broker"]["state"] == "yellow"
    assert "tandem up" in found["broker"]["hint"]


def test_a_broker_that_needs_tokens_is_asked_with_one(repository: Path, own_home: Path) -> None:
    settings = own_home / "config/gsd-review-broker/config.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"auth": "token", "reviewer_pool": {"enabled": True}}))
    with BrokerProcess(repository, home=own_home) as running:
        here = Tandem(repository, own_home)
        # Whoever runs the broker needs none.
        for token, state in ((None, "green"), ("tdm_wrong", "red")):
            done = here.run("doctor", "--json", **({} if token is None else {"BROKER_TOKEN": token}))
            found = {check["name"]: check for check in done.json["checks"]}
            assert found["broker"]["state"] == state, found["broker"]
            assert ("pool" in found) == (state == "green")
            assert "gate" in found
        elsewhere = Tandem(repository, own_home, BROKER_URL=f"http://127.0.0.1:{running.port}")
        done = elsewhere.run("doctor")
        assert (done.code, "this broker needs a token" in done.out) == (1, True)


def test_a_configuration_that_is_wrong_is_red_and_exits_1(repository: Path, own_home: Path) -> None:
    (repository / ".planning").mkdir()
    (repository / ".planning" / "review-broker.json").write_text('{"max_rounds": 0}')
    code, found = checks(Tandem(repository, own_home))
    assert (code, found["configuration"]["state"]) == (1, "red")
    assert "max_rounds" in found["configuration"]["found"]
    (repository / ".planning" / "review-broker.json").write_text("{")
    code, found = checks(Tandem(repository, own_home))
    assert (code, found["configuration"]["state"], found["project file"]["state"]) == (0, "green", "yellow")
    assert "line 1, column 2" in found["project file"]["found"]


def test_a_state_folder_that_cannot_be_made_is_red_and_up_names_it(repository: Path, own_home: Path) -> None:
    place = own_home / "a file"
    place.write_text("")
    tandem = Tandem(repository, own_home, XDG_STATE_HOME=str(place))
    code, found = checks(tandem)
    assert (code, found["state folder"]["state"]) == (1, "red")
    assert str(place) in found["state folder"]["found"]
    said = tandem.run("up")
    assert (said.code, str(place) in said.err, "Errno" in said.err) == (3, True, False), said


def test_git_that_is_missing_is_red(repository: Path, own_home: Path, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    code, found = checks(Tandem(repository, own_home), PATH=str(programs))
    assert (code, found["git"]["state"]) == (1, "red")
    assert "Install git" in found["git"]["hint"]


def test_a_database_that_others_may_read_is_yellow(process: BrokerProcess) -> None:
    process.database.chmod(0o644)
    _, found = checks(Tandem(process.folder, process.home))
    assert found["database"]["state"] == "yellow"
    assert found["database"]["hint"] == f"chmod 600 {process.database}"


def foreign(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE notes (text)")


def newer(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE alembic_version (version_num)")
        connection.execute("INSERT INTO alembic_version VALUES ('9999')")


SPOILT: dict[str, tuple[Callable[[Path], object], str]] = {
    "destroyed": (lambda path: path.write_bytes(b"\0garbage" * 1000), "backup"),
    "header alone": (lambda path: path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000), "backup"),
    "foreign": (foreign, "another program"),
    "newer": (newer, "9999"),
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_database_that_is_not_ours_or_destroyed_is_red_and_left_as_it_is(
    repository: Path, own_home: Path, how: str
) -> None:
    path = repository / ".planning" / "codex_review_broker.sqlite3"
    path.parent.mkdir()
    spoil, said = SPOILT[how]
    spoil(path)
    path.chmod(0o600)
    before = path.read_bytes()
    code, found = checks(Tandem(repository, own_home))
    assert (code, found["database"]["state"]) == (1, "red")
    assert said in found["database"]["found"] + found["database"]["hint"]
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_database_whose_broker_ended_is_green(process: BrokerProcess) -> None:
    process.stop(signal.SIGTERM)
    _, found = checks(Tandem(process.folder, process.home))
    assert found["database"]["state"] == "green"
    process.database.write_bytes(b"")
    _, found = checks(Tandem(process.folder, process.home))
    assert found["database"]["state"] == "green"


def test_clients_that_are_found_have_a_line_and_the_gate_that_is_not_there_too(
    repository: Path, own_home: Path, tmp_path: Path
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "codex").write_text("#!/bin/sh\n")
    (programs / "codex").chmod(0o755)
    tandem = Tandem(repository, own_home)
    _, found = checks(tandem, PATH=f"{programs}:{tandem.environment['PATH']}")
    assert found["codex"]["hint"] == "tandem install codex"
    assert (found["gate"]["state"], "not installed" in found["gate"]["found"]) == ("yellow", True)


# Completion.


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_script_that_asks_for_what_comes_next(repository: Path, own_home: Path, shell: str) -> None:
    said = Tandem(repository, own_home).run("completion", shell)
    assert said.code == 0
    assert "tandem __complete" in said.out


def completed(tandem: Tandem, *words: str) -> list[str]:
    said = tandem.run("__complete", *words)
    assert (said.code, said.err) == (0, "")
    return [line.split("\t")[0] for line in said.out.splitlines()]


def test_commands_options_values_and_live_ids_are_completed(process: BrokerProcess) -> None:
    tandem = Tandem(process.folder, process.home)
    mcp = process.client()
    review_id = mcp("create_review", **{**PROPOSAL, "intent": "Hostile \x1b]52;c;x\x07 intent"})["review_id"]
    assert completed(tandem, "app") == ["apply", "approve"]
    assert completed(tandem, "audit", "l") == ["log"]
    assert completed(tandem, "list", "--st") == ["--status"]
    assert completed(tandem, "list", "--status", "c") == ["claimed", "changes_requested", "closed"]
    assert completed(tandem, "show", "") == [review_id]
    assert completed(tandem, "show", "--json", review_id[:4]) == [review_id]
    assert completed(tandem, "propose", "--review", "") == [review_id]
    assert completed(tandem, "show", review_id, "") == []
    assert "\x1b" not in tandem.run("__complete", "show", "").out
    tandem(
        "request-changes",
        review_id,
        "-m",
        "x",
        "--findings",
        "-",
        stdin=b'[{"title": "One", "body": "b", "severity": "low"}]',
    )
    finding = mcp("get_discussion", review_id=review_id)["findings"][0]["finding_id"]
    assert completed(tandem, "resolve", review_id, "") == [finding]
    assert completed(tandem, "resolve", review_id, finding, "f") == ["fixed"]
    assert completed(tandem, "nonsense", "x") == []


def test_without_a_broker_completion_is_silent(repository: Path, own_home: Path) -> None:
    assert completed(Tandem(repository, own_home), "show", "") == []


def test_bash_itself_completes_with_it(process: BrokerProcess) -> None:
    tandem = Tandem(process.folder, process.home)
    review_id = process.client()("create_review", **PROPOSAL)["review_id"]
    script = (
        'eval "$(tandem completion bash)"; COMP_WORDS=(tandem show ""); COMP_CWORD=2; _tandem; echo "${COMPREPLY[@]}"'
    )
    path = f"{Path(PROGRAM).parent}:{tandem.environment['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script], cwd=process.folder, env={**tandem.environment, "PATH": path},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"{review_id}\n"


# The pool's switch.


def test_the_pool_is_switched_on_in_the_file_and_everything_else_in_it_stays(repository: Path, own_home: Path) -> None:
    tandem = Tandem(repository, own_home)
    file = repository / ".planning" / "review-broker.json"
    file.parent.mkdir()
    file.write_text('{"max_rounds": 7, "reviewer_pool": {"claim_timeout_seconds": 90}}')
    switched = tandem("pool", "enable", "--agent", "claude")
    assert (switched["file"], switched["changed"]) == (str(file), True)
    assert json.loads(file.read_text()) == {
        "max_rounds": 7,
        "reviewer_pool": {"claim_timeout_seconds": 90, "enabled": True, "agent": "claude"},
    }
    before = file.read_bytes()
    assert tandem("pool", "enable", "--agent", "claude")["changed"] is False
    assert file.read_bytes() == before
    tandem("pool", "disable")
    assert json.loads(file.read_text())["reviewer_pool"]["enabled"] is False
    users = tandem("pool", "enable", "--scope", "user")["file"]
    assert json.loads(Path(users).read_text()) == {"reviewer_pool": {"enabled": True, "agent": "codex"}}


def test_a_pool_that_the_next_start_would_leave_off_is_told_at_once(repository: Path, own_home: Path) -> None:
    tandem = Tandem(repository, own_home)
    said = tandem.run("pool", "enable", "--agent", "command")
    assert said.code == 0
    assert said.err.startswith("problem: "), said
    assert "'command' needs reviewer_pool.agents.command.command" in said.err
    users = own_home / "config" / "gsd-review-broker" / "config.json"
    users.parent.mkdir(parents=True)
    users.write_text('{"reviewer_pool": {"agents": {"command": {"command": ["true"]}}}}')
    assert tandem.run("pool", "enable").err == ""


def test_an_agent_that_is_configured_stays_when_the_pool_is_switched_on(repository: Path, own_home: Path) -> None:
    tandem = Tandem(repository, own_home)
    file = repository / ".planning" / "review-broker.json"
    tandem("pool", "enable", "--agent", "claude")
    tandem("pool", "disable")
    said = tandem.run("pool", "enable").out
    assert said.startswith(f"{file}: reviewer_pool.enabled is true, agent is claude\n")
    assert json.loads(file.read_text())["reviewer_pool"] == {"enabled": True, "agent": "claude"}
    assert "is already true, agent is claude" in tandem.run("pool", "enable").out


def test_the_users_agent_is_not_overruled_by_switching_a_projects_pool_on(repository: Path, own_home: Path) -> None:
    tandem = Tandem(repository, own_home)
    users = tandem("pool", "enable", "--scope", "user", "--agent", "gemini")["file"]
    said = tandem.run("pool", "enable").out
    assert f"agent is gemini by {users}\n" in said
    file = repository / ".planning" / "review-broker.json"
    assert json.loads(file.read_text()) == {"reviewer_pool": {"enabled": True}}


def test_a_file_that_is_no_json_is_not_touched(repository: Path, own_home: Path) -> None:
    file = repository / ".planning" / "review-broker.json"
    file.parent.mkdir()
    file.write_text("{ // mine\n}")
    said = Tandem(repository, own_home).run("pool", "enable")
    assert said.code == 3
    assert file.read_text() == "{ // mine\n}"
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_help_and_version_are_there(repository: Path, own_home: Path) -> None:
    tandem = Tandem(repository, own_home)
    assert tandem.run("--version").out == f"tandem {__version__}\n"
    assert tandem.run("--help").code == 0
    assert tandem.run().code == 2
    assert "PATH:LINE" in tandem.run("approve", "--help").out
