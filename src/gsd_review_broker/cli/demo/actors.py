"""The proposer and the reviewer of the demo, with real tools, a pace, and output. Each is a process of its own."""

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gsd_review_broker.cli.demo import script
from gsd_review_broker.cli.gate.setup import install_gate
from gsd_review_broker.cli.git import changes
from gsd_review_broker.client.connection import Connection, Json
from gsd_review_broker.git.objects import commit_records, digest_of_records
from gsd_review_broker.git.program import Answer, run_git, run_users_git

WAIT_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Actor:
    """The stage passes its settings in the environment."""

    name: str
    folder: Path
    broker: Connection
    pause: float

    @classmethod
    def from_environment(cls, name: str) -> "Actor":
        return cls(
            name=name,
            folder=Path(os.environ["TANDEM_DEMO_FOLDER"]),
            broker=Connection(os.environ["BROKER_URL"]),
            pause=float(os.environ["TANDEM_DEMO_PAUSE"]),
        )

    def call(self, tool: str, **arguments: Any) -> Json:
        return self.broker.call(tool, arguments)

    def say(self, text: str, *, details: list[str] | None = None, chapter: str | None = None) -> None:
        """Tell the narrator (the parent process), then pause for reading. It comes before the action, so that no answer
        precedes it.
        """
        line = {"who": self.name, "text": text, "details": details or [], "chapter": chapter}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
        time.sleep(self.pause)

    def diff_to(self, file: str, content: str) -> str:
        """The output of `git diff` for this content; the file is restored afterwards."""
        path = self.folder / file
        before = path.read_bytes()
        path.write_text(content, "utf-8")
        try:
            with changes.opened(self.folder) as tree:
                return changes.worktree(tree).diff.decode("utf-8")
        finally:
            path.write_bytes(before)

    def status(self, review_id: str, since: int | None = None) -> Json:
        """Waits, in slices, until something has changed."""
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
    diff = actor.diff_to(script.FILE, script.FIRST)
    text = f'proposes a change before committing it, and waits: "{script.INTENT}"'
    actor.say(text, details=[_size(diff)], chapter="Round 1")
    return _create(actor, diff)["review_id"]


def _create(actor: Actor, diff: str, review_id: str | None = None) -> Json:
    revised = {} if review_id is None else {"review_id": review_id}
    return actor.call(
        "create_review",
        intent=script.INTENT,
        description=script.DESCRIPTION,
        agent_type="demo",
        agent_role="proposer",
        phase="demo",
        category="code_change",
        proposer_id=script.PROPOSER,
        diff=diff,
        **revised,
    )


def _size(diff: str) -> str:
    starts = [line[:1] for line in diff.splitlines() if not line.startswith(("+++", "---"))]
    return f"{script.FILE}  +{starts.count('+')} -{starts.count('-')}"


def _decision(actor: Actor, review_id: str) -> Json:
    """Intermediate steps are not a decision."""
    status = actor.status(review_id)
    while status["status"] not in {"approved", "changes_requested"}:
        status = actor.status(review_id, since=status["version"])
    return status


def _revise(actor: Actor, review_id: str) -> None:
    _decision(actor, review_id)
    findings = actor.call("get_discussion", review_id=review_id)["findings"]
    actor.say(f"reads {len(findings)} findings, answers, and fixes both", details=[script.ANSWER], chapter="Round 2")
    for finding in findings:
        actor.call("resolve_finding", review_id=review_id, finding_id=finding["finding_id"], disposition="fixed")
    actor.call(
        "add_message", review_id=review_id, sender_role="proposer", sender_id=script.PROPOSER, body=script.ANSWER
    )
    diff = actor.diff_to(script.FILE, script.SECOND)
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
    actor.call("accept_counter_patch", review_id=review_id, proposer_id=script.PROPOSER)


def _land(actor: Actor, review_id: str) -> None:
    """Through the real git hook, in mode block."""
    _decision(actor, review_id)
    proposal = actor.call("get_proposal", review_id=review_id)
    approved: str = proposal["digest"]
    install_gate(actor.folder, mode="block")
    actor.say("installs the gate: a git hook that lets only approved content land", chapter="The gate")
    (actor.folder / script.FILE).write_text(script.TAMPERED, "utf-8")
    _git(actor, "add", script.FILE)
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
    closed = actor.call("close_review", review_id=review_id, proposer_id=script.PROPOSER)
    actor.say(f"closes the review: {closed['outcome']}")
    if refused.code == 0 or done.code != 0 or committed != approved:
        sys.exit(1)


def _commit(actor: Actor) -> Answer:
    return run_users_git(actor.folder, "commit", "-q", "-m", script.COMMIT, hooks=True)


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
        claim = actor.call("claim_next", reviewer_id=script.REVIEWER, wait=True, wait_seconds=WAIT_SECONDS)
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
    actor.call("get_proposal", review_id=claim["review_id"], caller_id=script.REVIEWER)
    lines = [f"{one['severity']:<8}{one['path']}:{one['line_start']}  {one['title']}" for one in script.FINDINGS]
    actor.say(f'reads the diff and requests changes: "{script.FIRST_VERDICT}"', details=lines)
    _judge(actor, claim, "changes_requested", script.FIRST_VERDICT, findings=script.FINDINGS)


def _offer_better(actor: Actor) -> None:
    claim = _claim(actor)
    since = actor.call("get_proposal", review_id=claim["review_id"], since_revision=1, caller_id=script.REVIEWER)
    lines = len(since["diff"].splitlines())
    actor.say(f"reads only what changed since revision 1 ({lines} lines)")
    actor.say(f'offers a counter-patch: "{script.COUNTER_VERDICT}"')
    patch = actor.diff_to(script.FILE, script.COUNTER)
    _judge(actor, claim, "changes_requested", script.COUNTER_VERDICT, counter_patch=patch)


def _approve(actor: Actor) -> None:
    claim = _claim(actor)
    actor.call("get_proposal", review_id=claim["review_id"], caller_id=script.REVIEWER)
    actor.say(f'approves exactly this content: "{script.LAST_VERDICT}"', details=[f"digest {short(claim['digest'])}"])
    _judge(actor, claim, "approved", script.LAST_VERDICT)


_PARTS = {"proposer": propose, "reviewer": review}

if __name__ == "__main__":
    name = sys.argv[1]
    _PARTS[name](Actor.from_environment(name))
