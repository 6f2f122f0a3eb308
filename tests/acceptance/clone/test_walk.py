"""Every command, and every hook that we install, in clones that want to hurt whoever works in them.

Nothing of a clone runs, nothing outside of it is written or believed, and every refusal says why. A command that is
added later is walked too: the commands and what they need come from the command line's own parser."""

import argparse
import contextlib
import json
import os
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.gate.install import MARK
from tests.contract.commands import parsers
from tests.support import hostile_clone as hostile
from tests.support.processes import DATABASE, free_environment, git, make_repository
from tests.support.tandem import Said, Tandem

pytestmark = pytest.mark.slow

SUFFIXES = ("", "-wal", "-shm", "-journal", ".lock", ".runtime.json")
# What a needed argument is given, by its name; any other gets a word.
VALUES = {"N": "1", "A..B": "HEAD~1..HEAD", "--closed-before": "2020-01-01", "CLIENT": "claude", "FINDING": "1"}
# So that a command does its work, and ends.
MORE = {
    "propose": ["--worktree"],
    "wait": ["--timeout", "0"],
    "watch": ["--for", "0.1"],
    "demo": ["--fast", "--no-web"],
    "mcp": ["--no-start"],
    "serve": ["--port", "0"],
    "up": ["--port", "0"],
    "down": ["--force"],
    "setup": ["--yes"],
    "uninstall": ["claude"],
}
# They would end what the others work on.
LAST = ("apply", "close", "gate uninstall", "down")
# `git add` converts files by the filters that the repository's configuration names, as the user's own `git add` does.
MAY_FILTER = {"propose", "counter", "apply"}


def command_line(name: str, parser: argparse.ArgumentParser, review_id: str) -> list[str]:
    words: list[str] = []
    for action in parser._actions:
        if not action.required:
            continue
        names = list(action.option_strings) or [str(action.metavar or action.dest)]
        known = {**VALUES, "ID": review_id}
        value = known.get(names[0]) or (str(next(iter(action.choices))) if action.choices else "word")
        words += [names[0], value] if action.option_strings else [value]
    return [*name.split(), *words, *MORE.get(name, [])]


def walk(review_id: str = "abcdef") -> list[tuple[str, list[str]]]:
    ordered = sorted(parsers().items(), key=lambda item: LAST.index(item[0]) if item[0] in LAST else -1)
    return [(name, command_line(name, parser, review_id)) for name, (parser, _) in ordered]


def faults_of(name: str, answer: Said) -> list[str]:
    """What is wrong with how a command ended."""
    faults: list[str] = []
    if answer.code not in set(Exit):
        faults.append(f"exit code {answer.code} is not of the contract")
    if "Traceback" in answer.out + answer.err:
        faults.append(f"a traceback: {answer.err[-800:]}")
    if answer.code != Exit.DONE and not (answer.out + answer.err).strip():
        faults.append(f"exit code {answer.code} without a reason")
    return [f"{name}: {fault}" for fault in faults]


def taken(canary: Path) -> str:
    """What ran since the last look."""
    text = canary.read_text() if canary.exists() else ""
    canary.unlink(missing_ok=True)
    return text


class Scene:
    """A clone, the canaries, and a folder of the user that nothing of the clone may reach."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.clone = make_repository(
            folder / "clone",
            {"hello.txt": "one\ntwo\n", ".gitattributes": hostile.ATTRIBUTES, ".gitmodules": hostile.MODULES_FILE},
        )
        self.canary, self.filtered = folder / "canary", folder / "filtered"
        self.programs = folder / "programs"
        self.outside = folder / "outside"
        self.outside.mkdir()
        (self.outside / "file").write_text("mine")
        self.home = home
        self.tandem = Tandem(self.clone, home, BROWSER="true")

    def arm(self, *, hooks: bool = True) -> None:
        """Last, since from here on the user's own git would run the clone's programs."""
        original = git(self.clone, "rev-parse", "HEAD:hello.txt").decode().strip()
        other = git(self.clone, "hash-object", "-w", "--stdin", stdin=b"replaced\n").decode().strip()
        git(self.clone, "replace", original, other)
        hostile.plant_modules(self.clone, self.canary)
        hostile.name_programs(self.clone, self.programs, self.canary, hostile.PROGRAM_SETTINGS)
        hostile.name_programs(self.clone, self.programs, self.filtered, hostile.FILTER_SETTINGS)
        if hooks:
            hostile.plant_hooks(self.clone, self.canary)

    def walked(self, name: str, words: list[str]) -> tuple[Said, list[str]]:
        before = hostile.snapshot(self.outside)
        answer = self.tandem.run(*words)
        faults = faults_of(name, answer)
        faults += [f"{name}: {line}" for line in taken(self.canary).splitlines()]
        if name not in MAY_FILTER:
            faults += [f"{name}: {line}" for line in taken(self.filtered).splitlines()]
        taken(self.filtered)
        if hostile.snapshot(self.outside) != before:
            faults.append(f"{name}: wrote outside of the clone")
        return answer, faults


@pytest.fixture
def scene(tmp_path: Path, own_home: Path) -> Scene:
    return Scene(tmp_path, own_home)


@contextlib.contextmanager
def broker_of(scene: Scene) -> Generator[None]:
    assert scene.tandem.run("up", "--port", "0").code == 0
    try:
        yield
    finally:
        scene.tandem.run("down", "--force")


def test_where_a_broker_runs_no_command_runs_anything_of_the_clone(scene: Scene) -> None:
    program = str(hostile.make_program(scene.programs / "settings", scene.canary))
    settings = {
        "notify_command": [program],
        "log_file": str(scene.outside / "log"),
        "reviewer_pool": {"enabled": True, "agent": "command", "agents": {"command": {"command": [program]}}},
    }
    (scene.clone / ".planning").mkdir()
    (scene.clone / ".planning" / "review-broker.json").write_text(json.dumps(settings))
    git(scene.clone, "add", "-f", ".planning")
    git(scene.clone, "commit", "-q", "-m", "second")
    scene.arm()
    faults: list[str] = []
    with broker_of(scene):
        made = scene.tandem("propose", "-m", "a change", "--no-diff", "--description", "words")
        for name, words in walk(made["review_id"]):
            faults += scene.walked(name, words)[1]
    faults += taken(scene.canary).splitlines()
    assert not faults, "\n".join(faults)


# Clones in which nothing works, and each command says so.


def linked(suffix: str) -> Callable[[Scene], None]:
    def place(scene: Scene) -> None:
        (scene.clone / ".planning").mkdir()
        (scene.clone / (DATABASE + suffix)).symlink_to(scene.outside / "file")

    return place


def planning_is_a_link(scene: Scene) -> None:
    (scene.clone / ".planning").symlink_to(scene.outside)


def planning_is_a_submodule(scene: Scene) -> None:
    head = git(scene.clone, "rev-parse", "HEAD").decode().strip()
    git(scene.clone, "update-index", "--add", "--cacheinfo", f"160000,{head},.planning")
    (scene.clone / ".planning").mkdir()
    altered_database(scene)


def altered_database(scene: Scene) -> None:
    """It says of itself that it is ours, and approves whatever comes."""
    (scene.clone / ".planning").mkdir(exist_ok=True)
    with contextlib.closing(sqlite3.connect(scene.clone / DATABASE)) as connection, connection:
        connection.execute("CREATE TABLE alembic_version (version_num TEXT)")
        connection.execute("INSERT INTO alembic_version VALUES ('0003')")
        connection.execute("CREATE TABLE reviews (id TEXT, status TEXT)")
        connection.execute("CREATE TRIGGER t AFTER INSERT ON reviews BEGIN UPDATE reviews SET status = 'approved'; END")


def tracked_database(scene: Scene) -> None:
    altered_database(scene)
    git(scene.clone, "add", "-f", DATABASE)


def moved_work_tree(scene: Scene) -> None:
    git(scene.clone, "config", "core.worktree", str(scene.outside))


KINDS = {
    **{f"a link as database{suffix}": linked(suffix) for suffix in SUFFIXES},
    "planning is a link": planning_is_a_link,
    "planning is a submodule": planning_is_a_submodule,
    "a tracked database": tracked_database,
    "an altered database": altered_database,
    "a moved work tree": moved_work_tree,
}
# They need neither a broker nor its database.
NEED_NOTHING = {
    "completion",
    "demo",
    "install",
    "uninstall",
    "gate key",
    "config",
    "pool enable",
    "pool disable",
    "down",
}
# Claude Code wants a denial on standard output, and code 0.
NEED_NOTHING |= {"gate install", "gate uninstall", "gate status", "gate claude", "mcp"}
# They tell the rules from the configuration, and repair what the overlay wrote.
NEED_NOTHING |= {"gsd rules", "gsd status", "gsd check", "gsd checkpoint", "gsd session-start", "gsd statusline"}


@pytest.mark.parametrize("turn", range(len(KINDS)), ids=list(KINDS))
def test_where_no_broker_can_run_every_command_says_why(scene: Scene, turn: int) -> None:
    """Each kind has its share of the commands, and all have those that open the database."""
    place = list(KINDS.values())[turn]
    place(scene)
    scene.arm()
    faults: list[str] = []
    for number, (name, words) in enumerate(walk()):
        if number % len(KINDS) != turn and name not in {"up", "audit verify"}:
            continue
        answer, wrong = scene.walked(name, words)
        faults += wrong
        if answer.code == Exit.DONE and name not in NEED_NOTHING:
            faults.append(f"{name}: is done, and should be refused: {answer.out[:200]}")
    assert not faults, "\n".join(faults)


# A runtime file that points elsewhere.


@pytest.fixture
def impostor(scene: Scene) -> Generator[hostile.Impostor]:
    with hostile.Impostor() as server:
        server.health["serves"] = str(scene.clone)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_the_hooks_that_we_install_ask_nobody_else_and_run_nothing_of_the_clone(
    scene: Scene, impostor: hostile.Impostor
) -> None:
    first = git(scene.clone, "rev-parse", "HEAD").decode().strip()
    (scene.clone / "hello.txt").write_text("not approved\n")
    git(scene.clone, "commit", "-qam", "not approved")
    new = git(scene.clone, "rev-parse", "HEAD").decode().strip()
    git(scene.clone, "reset", "-q", "--hard", first)
    assert scene.tandem.run("gate", "install", "--mode", "block").code == 0
    scene.arm(hooks=False)
    hostile.put_runtime_file(scene.clone, url=impostor.url)
    hooks = [path for path in (scene.clone / ".git" / "hooks").iterdir() if MARK in path.read_text(errors="replace")]
    assert hooks
    before = hostile.snapshot(scene.outside)
    for hook in hooks:
        answers = {state: run_hook(scene, hook, state, f"{first} {new} refs/heads/main\n") for state in STATES}
        assert answers["prepared"].returncode == 1
        assert "no broker is running" in answers["prepared"].stderr.lower()
        assert [answer for answer in answers.values() if "Traceback" in answer.stderr] == []
    assert (taken(scene.canary), taken(scene.filtered), impostor.requests) == ("", "", [])
    assert hostile.snapshot(scene.outside) == before


STATES = ("prepared", "committed", "aborted")


def run_hook(scene: Scene, hook: Path, state: str, lines: str) -> "subprocess.CompletedProcess[str]":
    environment = {**free_environment(scene.home), "GIT_DIR": ".git", "BROKER_TOKEN": "tdm_secret"}
    return subprocess.run(
        [str(hook), state], cwd=scene.clone, env=environment, input=lines, capture_output=True, text=True, check=False
    )


def test_no_command_sends_anything_to_whom_a_clone_names(scene: Scene, impostor: hostile.Impostor) -> None:
    hostile.put_runtime_file(scene.clone, url=impostor.url, pid=os.getpid())
    scene.arm()
    faults: list[str] = []
    chosen = {"propose", "apply", "list", "status", "pool list", "gate override", "db prune", "mcp", "down"}
    for name, words in walk():
        if name in chosen:
            faults += scene.walked(name, words)[1]
    assert not faults, "\n".join(faults)
    assert impostor.requests == []
