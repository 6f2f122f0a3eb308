"""`git commit` of an approved change of 50 files behind the gate, over the same commit without one."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.support.tandem import Tandem

from benchmarks.client import Connection, structured, tool_request
from benchmarks.measuring import Samples
from benchmarks.report import Figure, ratio
from benchmarks.stage import PROPOSER, Stage
from gsd_review_broker.git.program import run_users_git

_BAR = 2.0
_NAMES = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "Bench"), ("EMAIL", "bench@example.invalid"))
}


class _Repository:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.base = self.git("rev-parse", "HEAD").strip()

    def git(self, *arguments: str) -> str:
        answer = run_users_git(self.folder, *arguments, environment=_NAMES, hooks=True)
        if answer.code != 0:
            raise RuntimeError(answer.why)
        return os.fsdecode(answer.output)

    def change(self, number: int) -> None:
        """New content each time, so that git has to store it."""
        self.git("reset", "-q", "--hard", self.base)
        for path in sorted((self.folder / "src").glob("*.py")):
            path.write_text(path.read_text().replace("line 1\n", f"line {number} of {path.name}\n"))

    def commit(self) -> None:
        self.git("commit", "-q", "-a", "-m", "Change 50 files")

    def commit_staged(self) -> None:
        self.git("commit", "-q", "-m", "Change 50 files")


@dataclass(frozen=True, slots=True)
class _Kind:
    """One way to commit. Not expected: the hook has to ask the broker, as after another commit."""

    name: str
    is_staged: bool
    is_expected: bool
    bar: float | None = None


_KINDS = (
    _Kind("gate: commit -a of 50 files, gated ÷ ungated", is_staged=False, is_expected=True, bar=_BAR),
    _Kind("gate: the same, already staged", is_staged=True, is_expected=True, bar=_BAR),
    _Kind("gate: commit -a, and the hook has to ask", is_staged=False, is_expected=False),
    _Kind("gate: already staged, and it has to ask", is_staged=True, is_expected=False),
)


def gate(stage: Stage) -> list[Figure]:
    free = _Repository(Path(shutil.copytree(stage.broker.folder, stage.folder / "ungated", symlinks=True)))
    gated = _Repository(stage.broker.folder)
    tandem = Tandem(gated.folder, stage.broker.home)
    tandem("gate", "install", "--mode", "block")
    # A ticket counts only if the configuration is older, and this one was written just now.
    os.utime(gated.folder / ".planning" / "review-broker.json", (0, 0))
    connection = stage.connection()
    try:
        samples = {(kind, name): Samples() for kind in _KINDS for name in ("gated", "free")}
        for number in range(4 if stage.quick else 20):
            for turn, kind in enumerate(_KINDS):
                _round(stage, connection, kind, number * len(_KINDS) + turn, (gated, free), samples)
    finally:
        connection.close()
        tandem("gate", "uninstall")
        gated.git("reset", "-q", "--hard", gated.base)
    return [
        ratio(kind.name, samples[kind, "gated"].p50, samples[kind, "free"].p50, kind.bar, "ungated") for kind in _KINDS
    ]


def _round(
    stage: Stage,
    connection: Connection,
    kind: _Kind,
    number: int,
    repositories: tuple[_Repository, _Repository],
    samples: dict[tuple[_Kind, str], Samples],
) -> None:
    gated, free = repositories
    for repository in repositories:
        repository.change(number)
    _approve(stage, connection, gated.git("diff", "--full-index"))
    if not kind.is_expected:
        for ticket in (gated.folder / ".git" / "tandem" / "tickets").iterdir():
            ticket.unlink()
    for name, repository in (("gated", gated), ("free", free)):
        if kind.is_staged:
            repository.git("add", "-A", "src")
        samples[kind, name].time(repository.commit_staged if kind.is_staged else repository.commit)


def _approve(stage: Stage, connection: Connection, diff: str) -> None:
    def call(tool: str, **arguments: object) -> dict[str, object]:
        return structured(connection.exchange(tool_request(stage.port, tool, dict(arguments))))

    review = call("create_review", **stage.new_proposal(diff=diff, proposer_id=PROPOSER))["review_id"]
    claim = call("claim_review", review_id=review, reviewer_id="reviewer-1")
    generation = claim["claim_generation"]
    call("submit_verdict", review_id=review, verdict="approved", claim_generation=generation)
