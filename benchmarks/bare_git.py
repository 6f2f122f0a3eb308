"""The git processes that validating a diff needs, one after the other and without a broker."""

import os
import subprocess
import tempfile
from pathlib import Path

# As src/gsd_review_broker/repository.py runs them; written out, so that a process too many there shows here.
_OPTIONS = (
    "-c", "core.hooksPath=/dev/null",
    "-c", "core.fsmonitor=false",
    "-c", "core.attributesFile=/dev/null",
    "-c", "core.excludesFile=/dev/null",
    "-c", "core.untrackedCache=false",
    "-c", "diff.external=",
    "-c", "apply.whitespace=nowarn",
    "-c", "apply.ignoreWhitespace=no",
    "-c", "core.protectHFS=true",
    "-c", "core.protectNTFS=true",
)  # fmt: skip
_ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_PAGER": "cat",
    "LC_ALL": "C",
}


class BareValidation:
    """A scratch index of its own for each run; making it is not counted."""

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

    def _git(self, *arguments: str, stdin: bytes = b"") -> bytes:
        return subprocess.run(
            ["git", *_OPTIONS, *arguments],
            cwd=self._repository, env=_ENVIRONMENT | self._index, input=stdin, capture_output=True, check=True,
        ).stdout  # fmt: skip

    def close(self) -> None:
        self._scratch.cleanup()
