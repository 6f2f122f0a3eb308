"""The git program, run alone: with nothing of the user's or the system's configuration, and no program but itself.

Light enough for a command that lives for some milliseconds: the standard library, and little of it.
"""

import os
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

GIT_TIMEOUT_SECONDS = 30.0
_LONGEST_COMPLAINT = 4_000
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
_FROM_ENVIRONMENT = ("PATH", "HOME", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "USERPROFILE")


@dataclass(frozen=True, slots=True)
class Answer:
    """What git said. It may end well and still have left out what it could not read: then it says so."""

    code: int
    output: bytes
    complaint: str

    @property
    def is_good(self) -> bool:
        return self.code == 0 and "error: " not in self.complaint

    @property
    def why(self) -> str:
        """Never empty: a reviewer is told something even if git crashed without a word."""
        if self.complaint:
            return self.complaint
        return f"git ended with signal {-self.code}" if self.code < 0 else f"git ended with code {self.code}"


def run_git(
    folder: str | Path,
    *arguments: str,
    environment: dict[str, str] | None = None,
    timeout: float = GIT_TIMEOUT_SECONDS,
) -> Answer:
    """To its end, with nothing of the user's or the system's configuration and no program but git itself."""
    done = subprocess.run(
        ["git", *_OPTIONS, *_trusted(), *arguments],
        cwd=folder,
        env=_environment() | (environment or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout,
        check=False,
    )
    said = done.stderr.decode("utf-8", "replace").strip()
    return Answer(done.returncode, done.stdout, said[:_LONGEST_COMPLAINT])


@cache
def _trusted() -> tuple[str, ...]:
    """Folders of other owners that the user has declared safe: all that counts of the user's configuration."""
    asked = subprocess.run(
        ["git", "config", "--global", "--get-all", "safe.directory"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=GIT_TIMEOUT_SECONDS,
        check=False,
    )
    folders = text_of(asked.stdout).split("\n") if asked.stdout else []
    return tuple(word for folder in folders for word in ("-c", f"safe.directory={folder}"))


def text_of(output: bytes) -> str:
    """Without the line feed that git ends with; a path may hold any other character, and even that one."""
    return os.fsdecode(output).removesuffix("\n")


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _FROM_ENVIRONMENT if name in os.environ}
    return kept | {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        # Objects are what their ids say, and commits have the parents that they name.
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_GRAFT_FILE": os.devnull,
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_PAGER": "cat",
        "LC_ALL": "C",
    }


def alternate(path: str) -> str:
    """A path in the list of alternates: in quotes where it holds the list's separator or a quote."""
    if os.pathsep not in path and '"' not in path and "\n" not in path:
        return path
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
