"""What `tandem demo` plays: a scratch repository with a clone for the reviewer, a broker on a free port, and the script
of a proposer and a reviewer.

Only the agents are scripted; broker, git and the calls between them are real. All of it is removed afterwards.
"""

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gsd_review_broker.cli import changes
from gsd_review_broker.cli.broker import background
from gsd_review_broker.cli.project_files import install_gate
from gsd_review_broker.client import RunningBroker, Target
from gsd_review_broker.client.connection import Connection, Json
from gsd_review_broker.errors import StartError
from gsd_review_broker.git.objects import commit_records, digest_of_records
from gsd_review_broker.git.program import Answer, run_git, run_users_git
from gsd_review_broker.settings.locations import DATABASE_NAME, PROJECT_FOLDER, Locations
from gsd_review_broker.settings.state_files import Database

_FILE = "greet.py"
_PROPOSER = "demo-proposer"
_REVIEWER = "demo-reviewer"
_INTENT = "Greet by the name that stands in a file"
_DESCRIPTION = (
    "So far the program greets the world alone. It shall read a name from a file, and greet the world without one."
)

_ORIGINAL = '''\
"""Says hello."""

print("Hello, world!")
'''

_FIRST = '''\
"""Says hello."""

import sys


def greeting(path: str) -> str:
    name = open(path).read()
    return "Hello, " + name + "!"


print(greeting(sys.argv[1]))
'''

_SECOND = '''\
"""Says hello."""

import sys


def greeting(path: str | None) -> str:
    name = "world"
    if path:
        with open(path, encoding="utf-8") as file:
            name = file.read()
    return f"Hello, {name}!"


print(greeting(sys.argv[1] if len(sys.argv) > 1 else None))
'''

_COUNTER = '''\
"""Says hello."""

import sys
from pathlib import Path


def greeting(path: str | None) -> str:
    name = Path(path).read_text("utf-8").strip() if path else "world"
    return f"Hello, {name}!"


print(greeting(sys.argv[1] if len(sys.argv) > 1 else None))
'''
_TAMPERED = _COUNTER.replace("Hello, {name}!", "Hello, {name}?")

_FINDINGS = [
    {"path": _FILE, "line_start": line, "line_end": line, "severity": severity, "title": title, "body": body}
    for line, severity, title, body in (
        (
            7,
            "high",
            "The file is never closed",
            "Open it in a with statement, and name the encoding: it depends on the machine otherwise.",
        ),
        (
            11,
            "medium",
            "Without an argument it crashes",
            "The description says that it greets the world then; sys.argv[1] raises IndexError.",
        ),
    )
]
_FIRST_VERDICT = "Two things before this may land."
_ANSWER = "Both are right. The second revision closes the file, names UTF-8 and greets the world without a name."
_COUNTER_VERDICT = "Better. But a name's line feed ends up before the exclamation mark; this is shorter and strips it."
_LAST_VERDICT = "This is what I would have written."

_START_SECONDS = 30.0
_END_SECONDS = 10.0
# Of a refusal.
_MOST_LINES = 5


@dataclass(frozen=True, slots=True)
class Actor:
    name: str
    folder: Path
    broker: Connection
    tell: Callable[[Json], None]
    pause: float

    def call(self, tool: str, **arguments: Any) -> Json:
        return self.broker.call(tool, arguments)

    def say(self, text: str, *details: str, chapter: str | None = None) -> None:
        """Tell the narrator before the action, then pause for reading."""
        self.tell({"who": self.name, "text": text, "details": list(details), "chapter": chapter})
        time.sleep(self.pause)

    def diff_to(self, content: str) -> str:
        """Return the output of `git diff` for this content, and restore the file."""
        path = self.folder / _FILE
        before = path.read_bytes()
        path.write_text(content, "utf-8")
        try:
            with changes.opened(self.folder) as tree:
                return changes.worktree(tree).diff.decode("utf-8")
        finally:
            path.write_bytes(before)

    def git(self, *arguments: str, text: str = "") -> None:
        answer = run_git(self.folder, *arguments, standard_input=text.encode("utf-8"))
        if answer.code != 0:
            raise RuntimeError(answer.why)

    def commit(self) -> Answer:
        """Commit with the repository's hook, which is the gate."""
        return run_users_git(self.folder, "commit", "-q", "-m", _INTENT, hooks=True)


def play(broker: Connection, folder: Path, tell: Callable[[Json], None], *, pause: float) -> None:
    """Play the script on the stage that was built in this folder. Raise StartError if the gate errs."""
    proposer = Actor("proposer", folder / "project", broker, tell, pause)
    reviewer = Actor("reviewer", folder / "reviewer", broker, tell, pause)
    with _in_environment(_environment(folder)):
        review_id = _find_fault(proposer, reviewer)
        _offer_better(proposer, reviewer, review_id)
        _approve(proposer, reviewer, review_id)
        _land(proposer, review_id)


def _find_fault(proposer: Actor, reviewer: Actor) -> str:
    diff = proposer.diff_to(_FIRST)
    proposer.say(f'proposes a change before committing it, and waits: "{_INTENT}"', _size(diff), chapter="Round 1")
    review_id: str = _propose(proposer, diff)["review_id"]
    claim = _claim(reviewer)
    reviewer.call("get_proposal", review_id=review_id, caller_id=_REVIEWER)
    lines = [f"{one['severity']:<8}{one['path']}:{one['line_start']}  {one['title']}" for one in _FINDINGS]
    reviewer.say(f'reads the diff and requests changes: "{_FIRST_VERDICT}"', *lines)
    _judge(reviewer, claim, "changes_requested", _FIRST_VERDICT, findings=_FINDINGS)
    return review_id


def _offer_better(proposer: Actor, reviewer: Actor, review_id: str) -> None:
    findings = proposer.call("get_discussion", review_id=review_id)["findings"]
    proposer.say(f"reads {len(findings)} findings, answers, and fixes both", _ANSWER, chapter="Round 2")
    for finding in findings:
        proposer.call("resolve_finding", review_id=review_id, finding_id=finding["finding_id"], disposition="fixed")
    proposer.call("add_message", review_id=review_id, sender_role="proposer", sender_id=_PROPOSER, body=_ANSWER)
    diff = proposer.diff_to(_SECOND)
    proposer.say("proposes revision 2", _size(diff))
    _propose(proposer, diff, review_id=review_id)
    claim = _claim(reviewer)
    since = reviewer.call("get_proposal", review_id=review_id, since_revision=1, caller_id=_REVIEWER)
    reviewer.say(f"reads only what changed since revision 1 ({len(since['diff'].splitlines())} lines)")
    reviewer.say(f'offers a counter-patch: "{_COUNTER_VERDICT}"')
    _judge(reviewer, claim, "changes_requested", _COUNTER_VERDICT, counter_patch=reviewer.diff_to(_COUNTER))


def _approve(proposer: Actor, reviewer: Actor, review_id: str) -> None:
    proposal = proposer.call("get_proposal", review_id=review_id)
    text = "finds the counter-patch better, and accepts it: it is judged like any other revision"
    proposer.say(text, *_changed_lines(proposal["counter_patch"])[-4:], chapter="Round 3")
    proposer.call("accept_counter_patch", review_id=review_id, proposer_id=_PROPOSER)
    claim = _claim(reviewer)
    reviewer.call("get_proposal", review_id=review_id, caller_id=_REVIEWER)
    reviewer.say(f'approves exactly this content: "{_LAST_VERDICT}"', f"digest {_short(claim['digest'])}")
    _judge(reviewer, claim, "approved", _LAST_VERDICT)


def _land(proposer: Actor, review_id: str) -> None:
    """Commit through the real git hook, in mode block."""
    proposal = proposer.call("get_proposal", review_id=review_id)
    approved: str = proposal["digest"]
    install_gate(proposer.folder, mode="block")
    proposer.say("installs the gate: a git hook that lets only approved content land", chapter="The gate")
    (proposer.folder / _FILE).write_text(_TAMPERED, "utf-8")
    proposer.git("add", _FILE)
    with changes.opened(proposer.folder) as tree:
        other = changes.staged_digest(tree)
    refused = proposer.commit()
    proposer.say(
        "tries to land something else: one character differs",
        f"approved {_short(approved)}",
        f"staged   {_short(other)}",
        f"the gate's answer: {'lets it in' if refused.code == 0 else 'refused'}",
        *refused.errors.splitlines()[:_MOST_LINES],
    )
    proposer.git("reset", "-q", "--hard")
    proposer.git("apply", "--index", "-", text=proposal["diff"])
    done = proposer.commit()
    committed = digest_of_records(commit_records(proposer.folder, "HEAD"))
    proposer.say(
        "applies exactly what was approved, and commits it",
        f"approved {_short(approved)}",
        f"commit   {_short(committed)}",
        f"the gate's answer: {'lets it in' if done.code == 0 else done.why}",
    )
    closed = proposer.call("close_review", review_id=review_id, proposer_id=_PROPOSER)
    proposer.say(f"closes the review: {closed['outcome']}")
    if refused.code == 0 or done.code != 0 or committed != approved:
        raise StartError("the demo's gate did not let exactly the approved content land.")


def _propose(proposer: Actor, diff: str, **revised: str) -> Json:
    return proposer.call(
        "create_review",
        intent=_INTENT,
        description=_DESCRIPTION,
        agent_type="demo",
        agent_role="proposer",
        phase="demo",
        category="code_change",
        proposer_id=_PROPOSER,
        diff=diff,
        **revised,
    )


def _claim(reviewer: Actor) -> Json:
    claim = reviewer.call("claim_next", reviewer_id=_REVIEWER)
    text = f"claims revision {claim['revision']}; git says that it applies"
    reviewer.say(text, f"digest {_short(claim['digest'])}, claim generation {claim['claim_generation']}")
    return claim


def _judge(reviewer: Actor, claim: Json, verdict: str, reason: str, **more: object) -> None:
    named = {"review_id": claim["review_id"], "claim_generation": claim["claim_generation"]}
    reviewer.call("submit_verdict", verdict=verdict, reason=reason, **named, **more)


def _changed_lines(diff: str) -> list[str]:
    return [line for line in diff.splitlines() if line[:1] in {"+", "-"} and line[:3] not in {"+++", "---"}]


def _size(diff: str) -> str:
    starts = [line[0] for line in _changed_lines(diff)]
    return f"{_FILE}  +{starts.count('+')} -{starts.count('-')}"


def _short(digest: str | None) -> str:
    return (digest or "no digest")[:19] + "…"


@contextlib.contextmanager
def built() -> Generator[tuple[RunningBroker, Path]]:
    """Build the stage: a broker, and the folder of both repositories."""
    # If it is stopped from outside, it still removes everything.
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        with tempfile.TemporaryDirectory(prefix="tandem-demo-", ignore_cleanup_errors=True) as name:
            folder = Path(os.path.realpath(name))
            (folder / "home").mkdir()
            _make_repositories(folder)
            with _broker(folder) as broker:
                yield broker, folder
                broker.connection.close()
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _environment(folder: Path) -> dict[str, str]:
    """Leave out the user's own settings: a pool that is enabled there must not start for a demo."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("BROKER_", "XDG_", "TANDEM_", "GIT_"))}
    home = str(folder / "home")
    names = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in _AUTHOR.items()}
    return {**kept, **names, "HOME": home, "USERPROFILE": home, "GIT_CONFIG_NOSYSTEM": "1"}


_AUTHOR = {"NAME": "Tandem demo", "EMAIL": "demo@example.invalid"}


@contextlib.contextmanager
def _in_environment(environment: dict[str, str]) -> Generator[None]:
    """Replace this process's environment: the browser, which opens before, needs the user's own."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _make_repositories(folder: Path) -> None:
    project = folder / "project"
    project.mkdir()
    (project / _FILE).write_text(_ORIGINAL, "utf-8")
    for command in (
        ["init", "-q", "-b", "main"],
        ["add", "-A"],
        ["commit", "-q", "-m", "Say hello"],
        ["-c", "protocol.file.allow=always", "clone", "-q", str(project), str(folder / "reviewer")],
    ):
        answer = run_git(project, *command, environment=_environment(folder))
        if answer.code != 0:
            raise RuntimeError(answer.why)


@contextlib.contextmanager
def _broker(folder: Path) -> Generator[RunningBroker]:
    project, path = folder / "project", folder / "broker.log"
    target = Target(locations=Locations(root=project, database=Database(project / PROJECT_FOLDER / DATABASE_NAME)))
    with path.open("wb") as log:
        process = background.launch(["--port", "0"], folder=project, environment=_environment(folder), log=log)
    with process:
        try:
            broker = background.await_answer(process, target, seconds=_START_SECONDS)
            if broker is None:
                output = path.read_text("utf-8", "replace").strip()
                raise StartError(f"the demo's broker did not start: {output[-500:]}")
            yield broker
        finally:
            process.terminate()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
