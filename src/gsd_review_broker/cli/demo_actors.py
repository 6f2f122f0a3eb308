"""The demo's proposer and reviewer, with the texts that they send. Each actor is a process.

Only the agents are scripted; broker, git and the calls between them are real.
"""

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gsd_review_broker.cli import changes
from gsd_review_broker.cli.project_files import install_gate
from gsd_review_broker.client.connection import Connection, Json
from gsd_review_broker.git.objects import commit_records, digest_of_records
from gsd_review_broker.git.program import Answer, run_git, run_users_git

FILE = "greet.py"
PROPOSER = "demo-proposer"
REVIEWER = "demo-reviewer"
INTENT = "Greet by the name that stands in a file"
DESCRIPTION = (
    "So far the program greets the world alone. It shall read a name from a file, and greet the world without one."
)

ORIGINAL = '''\
"""Says hello."""


def greeting() -> str:
    return "Hello, world!"


if __name__ == "__main__":
    print(greeting())
'''

FIRST = '''\
"""Says hello."""

import sys


def greeting(path: str) -> str:
    name = open(path).read()
    return "Hello, " + name + "!"


if __name__ == "__main__":
    print(greeting(sys.argv[1]))
'''

SECOND = '''\
"""Says hello."""

import sys


def greeting(path: str | None) -> str:
    name = "world"
    if path:
        with open(path, encoding="utf-8") as file:
            name = file.read()
    return f"Hello, {name}!"


if __name__ == "__main__":
    print(greeting(sys.argv[1] if len(sys.argv) > 1 else None))
'''

COUNTER = '''\
"""Says hello."""

import sys
from pathlib import Path


def greeting(path: str | None) -> str:
    name = Path(path).read_text("utf-8").strip() if path else "world"
    return f"Hello, {name}!"


if __name__ == "__main__":
    print(greeting(sys.argv[1] if len(sys.argv) > 1 else None))
'''

FINDINGS: list[dict[str, Any]] = [
    {
        "path": FILE,
        "line_start": 7,
        "line_end": 7,
        "severity": "high",
        "title": "The file is never closed",
        "body": "Open it in a with statement, and name the encoding: it depends on the machine otherwise.",
    },
    {
        "path": FILE,
        "line_start": 12,
        "line_end": 12,
        "severity": "medium",
        "title": "Without an argument it crashes",
        "body": "The description says that it greets the world then; sys.argv[1] raises IndexError.",
    },
]
FIRST_VERDICT = "Two things before this may land."
ANSWER = "Both are right. The second revision closes the file, names UTF-8 and greets the world without a name."
COUNTER_VERDICT = "Better. But a name's line feed ends up before the exclamation mark; this is shorter and strips it."
LAST_VERDICT = "This is what I would have written."
COMMIT = "Greet by the name that stands in a file"
TAMPERED = COUNTER.replace("Hello, {name}!", "Hello, {name}?")


WAIT_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Actor:
    name: str
    folder: Path
    broker: Connection
    pause: float

    def call(self, tool: str, **arguments: Any) -> Json:
        return self.broker.call(tool, arguments)

    def say(self, text: str, *, details: list[str] | None = None, chapter: str | None = None) -> None:
        """Tell the narrator (the parent process) before the action, then pause for reading."""
        line = {"who": self.name, "text": text, "details": details or [], "chapter": chapter}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
        time.sleep(self.pause)

    def diff_to(self, file: str, content: str) -> str:
        """Return the output of `git diff` for this content, and restore the file."""
        path = self.folder / file
        before = path.read_bytes()
        path.write_text(content, "utf-8")
        try:
            with changes.opened(self.folder) as tree:
                return changes.worktree(tree).diff.decode("utf-8")
        finally:
            path.write_bytes(before)

    def status(self, review_id: str, since: int | None = None) -> Json:
        """Wait, in slices, until the review has changed."""
        while True:
            arguments = {} if since is None else {"since": since}
            status = self.call(
                "get_review_status", review_id=review_id, wait=True, wait_seconds=WAIT_SECONDS, **arguments
            )
            if status["changed"]:
                return status
            since = status["version"]


def short(digest: str | None) -> str:
    return (digest or "no digest")[:19] + "…"


# Of a refusal.
_MOST_LINES = 5


def propose(actor: Actor) -> None:
    review_id = _propose(actor)
    _revise(actor, review_id)
    _accept(actor, review_id)
    _land(actor, review_id)


def _propose(actor: Actor) -> str:
    diff = actor.diff_to(FILE, FIRST)
    text = f'proposes a change before committing it, and waits: "{INTENT}"'
    actor.say(text, details=[_size(diff)], chapter="Round 1")
    return _create(actor, diff)["review_id"]


def _create(actor: Actor, diff: str, review_id: str | None = None) -> Json:
    revised = {} if review_id is None else {"review_id": review_id}
    return actor.call(
        "create_review",
        intent=INTENT,
        description=DESCRIPTION,
        agent_type="demo",
        agent_role="proposer",
        phase="demo",
        category="code_change",
        proposer_id=PROPOSER,
        diff=diff,
        **revised,
    )


def _size(diff: str) -> str:
    starts = [line[:1] for line in diff.splitlines() if not line.startswith(("+++", "---"))]
    return f"{FILE}  +{starts.count('+')} -{starts.count('-')}"


def _decision(actor: Actor, review_id: str) -> Json:
    """Wait for an approval or a request for changes."""
    status = actor.status(review_id)
    while status["status"] not in {"approved", "changes_requested"}:
        status = actor.status(review_id, since=status["version"])
    return status


def _revise(actor: Actor, review_id: str) -> None:
    _decision(actor, review_id)
    findings = actor.call("get_discussion", review_id=review_id)["findings"]
    actor.say(f"reads {len(findings)} findings, answers, and fixes both", details=[ANSWER], chapter="Round 2")
    for finding in findings:
        actor.call("resolve_finding", review_id=review_id, finding_id=finding["finding_id"], disposition="fixed")
    actor.call("add_message", review_id=review_id, sender_role="proposer", sender_id=PROPOSER, body=ANSWER)
    diff = actor.diff_to(FILE, SECOND)
    actor.say("proposes revision 2", details=[_size(diff)])
    _create(actor, diff, review_id)


def _accept(actor: Actor, review_id: str) -> None:
    _decision(actor, review_id)
    proposal = actor.call("get_proposal", review_id=review_id)
    patch = [
        line for line in proposal["counter_patch"].splitlines() if line[:1] in "+-" and line[:3] not in {"+++", "---"}
    ]
    text = "finds the counter-patch better, and accepts it: it is judged like any other revision"
    actor.say(text, details=patch[-4:], chapter="Round 3")
    actor.call("accept_counter_patch", review_id=review_id, proposer_id=PROPOSER)


def _land(actor: Actor, review_id: str) -> None:
    """Commit through the real git hook, in mode block."""
    _decision(actor, review_id)
    proposal = actor.call("get_proposal", review_id=review_id)
    approved: str = proposal["digest"]
    install_gate(actor.folder, mode="block")
    actor.say("installs the gate: a git hook that lets only approved content land", chapter="The gate")
    (actor.folder / FILE).write_text(TAMPERED, "utf-8")
    _git(actor, "add", FILE)
    with changes.opened(actor.folder) as tree:
        other = changes.staged_digest(tree)
    refused = _commit(actor)
    actor.say(
        "tries to land something else: one character differs",
        details=[
            f"approved {short(approved)}",
            f"staged   {short(other)}",
            f"the gate's answer: {'lets it in' if refused.code == 0 else 'refused'}",
            *refused.errors.splitlines()[:_MOST_LINES],
        ],
    )
    _git(actor, "reset", "-q", "--hard")
    _git(actor, "apply", "--index", "-", text=proposal["diff"])
    done = _commit(actor)
    committed = digest_of_records(commit_records(actor.folder, "HEAD"))
    actor.say(
        "applies exactly what was approved, and commits it",
        details=[
            f"approved {short(approved)}",
            f"commit   {short(committed)}",
            f"the gate's answer: {'lets it in' if done.code == 0 else done.why}",
        ],
    )
    closed = actor.call("close_review", review_id=review_id, proposer_id=PROPOSER)
    actor.say(f"closes the review: {closed['outcome']}")
    if refused.code == 0 or done.code != 0 or committed != approved:
        sys.exit(1)


def _commit(actor: Actor) -> Answer:
    return run_users_git(actor.folder, "commit", "-q", "-m", COMMIT, hooks=True)


def _git(actor: Actor, *arguments: str, text: str | None = None) -> bytes:
    answer = run_git(
        actor.folder,
        *arguments,
        # The name of the demo's author.
        environment={name: value for name, value in os.environ.items() if name.startswith(("GIT_AUTHOR_", "GIT_COMM"))},
        standard_input=None if text is None else text.encode("utf-8"),
    )
    if answer.code != 0:
        raise RuntimeError(answer.why)
    return answer.output


def review(actor: Actor) -> None:
    _find_fault(actor)
    _offer_better(actor)
    _approve(actor)


def _claim(actor: Actor) -> Json:
    while True:
        claim = actor.call("claim_next", reviewer_id=REVIEWER, wait=True, wait_seconds=WAIT_SECONDS)
        if claim["claimed"]:
            actor.say(
                f"claims revision {claim['revision']}; git says that it applies",
                details=[f"digest {short(claim['digest'])}, claim generation {claim['claim_generation']}"],
            )
            return claim


def _judge(actor: Actor, claim: Json, verdict: str, reason: str, **more: object) -> None:
    actor.call(
        "submit_verdict",
        review_id=claim["review_id"],
        verdict=verdict,
        reason=reason,
        claim_generation=claim["claim_generation"],
        **more,
    )


def _find_fault(actor: Actor) -> None:
    claim = _claim(actor)
    actor.call("get_proposal", review_id=claim["review_id"], caller_id=REVIEWER)
    lines = [f"{one['severity']:<8}{one['path']}:{one['line_start']}  {one['title']}" for one in FINDINGS]
    actor.say(f'reads the diff and requests changes: "{FIRST_VERDICT}"', details=lines)
    _judge(actor, claim, "changes_requested", FIRST_VERDICT, findings=FINDINGS)


def _offer_better(actor: Actor) -> None:
    claim = _claim(actor)
    since = actor.call("get_proposal", review_id=claim["review_id"], since_revision=1, caller_id=REVIEWER)
    lines = len(since["diff"].splitlines())
    actor.say(f"reads only what changed since revision 1 ({lines} lines)")
    actor.say(f'offers a counter-patch: "{COUNTER_VERDICT}"')
    patch = actor.diff_to(FILE, COUNTER)
    _judge(actor, claim, "changes_requested", COUNTER_VERDICT, counter_patch=patch)


def _approve(actor: Actor) -> None:
    claim = _claim(actor)
    actor.call("get_proposal", review_id=claim["review_id"], caller_id=REVIEWER)
    actor.say(f'approves exactly this content: "{LAST_VERDICT}"', details=[f"digest {short(claim['digest'])}"])
    _judge(actor, claim, "approved", LAST_VERDICT)


_PARTS = {"proposer": propose, "reviewer": review}

if __name__ == "__main__":
    name, folder, url, pause = sys.argv[1:]
    _PARTS[name](Actor(name=name, folder=Path(folder), broker=Connection(url), pause=float(pause)))
