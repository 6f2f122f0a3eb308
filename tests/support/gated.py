"""A repository behind the gate: a real broker, the real hook, real git."""

import contextlib
import subprocess
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from tests.support.processes import BrokerProcess, free_environment, make_repository
from tests.support.tandem import Said, Tandem
from tests.support.waiting import PATIENCE

PERSON = "human:ada"
FILES = {
    "hello.txt": "one\ntwo\nthree\n",
    "long.txt": "".join(f"line {number}\n" for number in range(60)),
    "other.txt": "other\n",
}


class Gated:
    """The actions of a proposer, a reviewer and git in one repository."""

    def __init__(self, process: BrokerProcess, home: Path, *, folder: Path | None = None) -> None:
        self.process = process
        self.home = home
        self.folder = folder or process.folder
        # Each test writes something else, so that no two have the same content.
        self.word = ""
        # What the tests of a module go back to.
        self.first = ""
        self.tandem = Tandem(self.folder, home)
        self.call = process.client()
        self.environment = {
            **{name: value for name, value in free_environment(home).items() if not name.startswith("GIT_")},
            "GIT_AUTHOR_NAME": "Test", "GIT_AUTHOR_EMAIL": "test@example.invalid",
            "GIT_COMMITTER_NAME": "Test", "GIT_COMMITTER_EMAIL": "test@example.invalid",
            "GIT_CONFIG_NOSYSTEM": "1", "GIT_EDITOR": "true",
        }  # fmt: skip

    @contextlib.contextmanager
    def without_broker(self) -> Generator[None]:
        """It has another port afterwards."""
        self.process.stop()
        try:
            yield
        finally:
            self.process.start()
            self.call = self.process.client()

    def elsewhere(self, folder: Path) -> "Gated":
        return Gated(self.process, self.home, folder=folder)

    def git(self, *arguments: str, stdin: bytes | None = None, **environment: str) -> Said:
        """As the user here runs it; it may fail."""
        done = subprocess.run(
            ["git", *arguments], cwd=self.folder, env=self.environment | environment, input=stdin,
            capture_output=True, check=False,
        )  # fmt: skip
        return Said(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))

    def must(self, *arguments: str, **more: Any) -> str:
        result = self.git(*arguments, **more)
        assert result.code == 0, (arguments, result)
        return result.out.strip()

    def write(self, name: str, content: str | bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    def stage(self, *names: str, **contents: str) -> None:
        for name, content in contents.items():
            self.write(name.replace("_", "."), content)
        self.must("add", "-A", "--", *(names or ["."]))

    def diff(self, *arguments: str) -> str:
        result = self.git("diff", "--binary", "--full-index", *(arguments or ("--cached",)))
        assert result.code == 0, result
        return result.out

    def propose(self, diff: str | None = None, **more: Any) -> str:
        created = self.call(
            "create_review", intent="A change", agent_type="gsd-executor", agent_role="proposer", phase="1",
            diff=diff or self.diff(), workspace=str(self.folder), **more,
        )  # fmt: skip
        return created["review_id"]

    def judge(self, review: str, verdict: str = "approved", *, by: str = "codex-1") -> str:
        claim = self.call("claim_review", review_id=review, reviewer_id=by)
        reason = None if verdict == "approved" else "No."
        optional = {"reason": reason} if reason else {}
        self.call(
            "submit_verdict", review_id=review, verdict=verdict, claim_generation=claim["claim_generation"], **optional
        )
        return review

    def approve(self, diff: str | None = None, *, by: str = "codex-1") -> str:
        """Propose what is staged, and have it approved."""
        return self.judge(self.propose(diff), by=by)

    def landed(self, commit: str) -> dict[str, Any]:
        """The event of a commit that landed. The hook reports it after git has finished, so it may take a moment."""
        end = time.monotonic() + 30
        while time.monotonic() < end:
            for event in self.events("commit_landed"):
                if event["metadata"]["commit"] == commit:
                    return event
            time.sleep(0.02)
        raise AssertionError(f"no event says that {commit} landed")

    def head(self, name: str = "HEAD") -> str:
        return self.must("rev-parse", name)

    def events(self, kind: str) -> list[dict[str, Any]]:
        matching: list[dict[str, Any]] = []
        after = 0
        while events := self.call("get_audit_log", limit=500, after=after)["events"]:
            matching += [event for event in events if event["event_type"] == kind]
            after = events[-1]["id"]
        return matching


@contextlib.contextmanager
def gated(
    folder: Path,
    *,
    mode: str = "block",
    patience: float | None = PATIENCE,
    files: dict[str, str] | None = None,
    prepare: Callable[[Path], object] = lambda _repository: None,
) -> Generator[Gated]:
    home = folder / "home"
    home.mkdir(exist_ok=True)
    repository = make_repository(folder / "gated", files or FILES)
    (repository / ".git" / "info" / "exclude").write_text("/.planning/\n")
    prepare(repository)
    with BrokerProcess(repository, home=home) as process:
        here = Gated(process, home)
        here.tandem("gate", "install", "--mode", mode)
        if patience is not None:
            with (repository / ".git" / "tandem" / "gate").open("a") as facts:
                facts.write(f"patience={patience}\n")
        yield here
