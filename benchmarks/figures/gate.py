"""`git commit` of an approved change of 50 files behind the gate, over the same commit without one."""

import os
import shutil
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


def gate(stage: Stage) -> list[Figure]:
    free = _Repository(Path(shutil.copytree(stage.broker.folder, stage.folder / "ungated", symlinks=True)))
    gated = _Repository(stage.broker.folder)
    tandem = Tandem(gated.folder, stage.broker.home)
    tandem("gate", "install", "--mode", "block")
    connection = stage.connection()
    try:
        samples = {"gated": Samples(), "free": Samples()}
        for number in range(8 if stage.quick else 40):
            for repository in (gated, free):
                repository.change(number)
            _approve(stage, connection, gated.git("diff", "--full-index"))
            samples["gated"].time(gated.commit)
            samples["free"].time(free.commit)
    finally:
        connection.close()
        tandem("gate", "uninstall")
        gated.git("reset", "-q", "--hard", gated.base)
    name = "gate: commit of 50 files, gated ÷ ungated"
    return [ratio(name, samples["gated"].p50, samples["free"].p50, _BAR, "ungated")]


def _approve(stage: Stage, connection: Connection, diff: str) -> None:
    def call(tool: str, **arguments: object) -> dict[str, object]:
        return structured(connection.exchange(tool_request(stage.port, tool, dict(arguments))))

    review = call("create_review", **stage.new_proposal(diff=diff, proposer_id=PROPOSER))["review_id"]
    claim = call("claim_review", review_id=review, reviewer_id="reviewer-1")
    generation = claim["claim_generation"]
    call("submit_verdict", review_id=review, verdict="approved", claim_generation=generation)
