"""The git processes that validating a diff needs, one after the other and without a broker."""

import tempfile
from pathlib import Path

from gsd_review_broker.git.program import run_git


class BareValidation:
    """Each run has its own scratch index; making it is not counted."""

    def __init__(self, repository: Path, diff: bytes) -> None:
        self._repository = repository
        self._diff = diff
        self._scratch = tempfile.TemporaryDirectory(prefix="tandem-bench-index-")
        objects = Path(self._scratch.name) / "objects"
        objects.mkdir()
        self._index = {
            "GIT_INDEX_FILE": f"{self._scratch.name}/index",
            "GIT_OBJECT_DIRECTORY": str(objects),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(repository / ".git/objects"),
        }

    def run(self) -> None:
        tree = self._git(
            "rev-parse", "--path-format=absolute", "--git-path", "objects", "--verify", "--quiet", "HEAD^{tree}"
        ).splitlines()[1]
        self._git("read-tree", tree.decode())
        self._git("apply", "--cached", "--whitespace=nowarn", "-", stdin=self._diff)
        self._git(
            "diff-index", "--cached", "-r", "-z", "--raw", "--no-renames", "--full-index",
            "--no-ext-diff", "--no-textconv", "HEAD", "--",
        )  # fmt: skip

    def _git(self, *arguments: str, stdin: bytes | None = None) -> bytes:
        """Uses the broker's own runner, so that options and environment are the same.

        The processes and their order are written out here; they are the yardstick.
        """
        answer = run_git(self._repository, *arguments, environment=self._index, standard_input=stdin)
        if answer.code != 0:
            raise RuntimeError(answer.why)
        return answer.output

    def close(self) -> None:
        self._scratch.cleanup()
