"""The one place where git is started: by broker, command line, hook, demo and benchmarks.

git runs alone: with nothing of the user's or the system's configuration, and no program but itself. What the
repository's own configuration could change is set here, or is harmless (see `_OPTIONS`). A claim goes further and runs
git in an empty repository beside the real one, where the real one's configuration does not count at all.

Light enough for a command that lives for some milliseconds: the standard library, and little of it.
"""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

GIT_TIMEOUT_SECONDS = 30.0
_LONGEST_COMPLAINT = 4_000
# No other program is run, whatever the configuration says.
_NO_PROGRAMS = (
    "-c", "core.hooksPath=/dev/null",
    "-c", "core.fsmonitor=false",
    "-c", "diff.external=",
    "-c", "core.alternateRefsCommand=false",
)  # fmt: skip
# A partial clone fetches what is missing, by a program that its configuration names. git before 2.45 does not know
# GIT_NO_LAZY_FETCH.
_NO_NETWORK = (
    "-c", "protocol.allow=never",
    "-c", "core.sshCommand=false",
    "-c", "credential.helper=",
)  # fmt: skip
# git reads what is stored: diffs are taken as they are, and no cache answers instead of an object.
_AS_IT_IS = (
    "-c", "apply.whitespace=nowarn",
    "-c", "apply.ignoreWhitespace=no",
    "-c", "core.protectHFS=true",
    "-c", "core.protectNTFS=true",
    "-c", "core.commitGraph=false",
    "-c", "core.untrackedCache=false",
)  # fmt: skip
# Settings of the repository that are left alone, since none of them changes which records a digest is made of:
# - core.autocrlf, core.eol, core.safecrlf, filter.*, core.bigFileThreshold, core.symlinks, core.fileMode,
#   core.trustctime, core.checkStat, core.sparseCheckout: about the work tree. A digest compares trees and the index.
# - core.ignoreCase, core.precomposeUnicode: how names are looked up in a file system.
# - index.*, core.splitIndex, core.preloadIndex, core.multiPackIndex, pack.*: where things are stored. What a claim
#   rests on is hashed again, wherever it comes from.
# - diff.*: records are asked for with --no-renames, --no-relative, --full-index, --ignore-submodules=none and -z, and
#   sorted, so renames, order, prefixes, abbreviations and quoting do not matter.
# - i18n.*: about the text of commit messages, which are not read.
# - core.worktree: a root from which git does not find the same repository is refused (`git/checkout`).
# - extensions.*: git refuses what it does not know. objectFormat is read from git and used.
# - include.path: whatever it includes is one of the settings above.
_OPTIONS = (
    *_NO_PROGRAMS,
    *_NO_NETWORK,
    *_AS_IT_IS,
    "-c", "core.attributesFile=/dev/null",
    "-c", "core.excludesFile=/dev/null",
)  # fmt: skip
# Objects are what their ids say, and commits have the parents that they name.
_TRUE_OBJECTS = {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_GRAFT_FILE": os.devnull}
_FROM_ENVIRONMENT = ("PATH", "HOME", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "USERPROFILE")


@dataclass(frozen=True, slots=True)
class Answer:
    """What git answered. It may exit with 0 and still have left out what it could not read: then it prints an error."""

    code: int
    output: bytes
    errors: str

    @property
    def is_good(self) -> bool:
        return self.code == 0 and not any(line.startswith("error: ") for line in self.errors.split("\n"))

    @property
    def complaint(self) -> str:
        return self.errors[:_LONGEST_COMPLAINT]

    @property
    def why(self) -> str:
        """Never empty: a reviewer gets a reason even if git crashed without a message."""
        if self.errors:
            return self.complaint
        return f"git ended with signal {-self.code}" if self.code < 0 else f"git ended with code {self.code}"


def run_git(
    folder: str | Path,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    standard_input: bytes | None = None,
    timeout: float = GIT_TIMEOUT_SECONDS,
) -> Answer:
    """Runs to its end, without the user's or the system's configuration, and runs no program but git itself."""
    command = [*git_command(), *arguments]
    return _finished(command, folder, {**git_environment(), **(environment or {})}, standard_input, timeout)


def run_users_git(
    folder: str | Path,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> Answer:
    """With the user's configuration and environment, since it is about the user's work tree: what is ignored, and how
    files are converted. No hook and no monitor runs, and objects are still what their ids say."""
    command = ["git", *_NO_PROGRAMS, *_AS_IT_IS, *arguments]
    return _finished(command, folder, {**os.environ, **_TRUE_OBJECTS, **(environment or {})}, None, timeout)


def start_git(folder: str | Path, *arguments: str, environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """A git that answers several questions; the caller stops it."""
    return subprocess.Popen(
        [*git_command(), *arguments],
        cwd=folder,
        env={**git_environment(), **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def git_command() -> list[str]:
    return ["git", *_OPTIONS, *_trusted()]


def _finished(
    command: list[str],
    folder: str | Path | None,
    environment: dict[str, str],
    standard_input: bytes | None,
    timeout: float | None,
) -> Answer:
    # A pipe for input costs a selector loop; most questions have no input.
    source = subprocess.DEVNULL if standard_input is None else subprocess.PIPE
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdin=source, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            output, errors = process.communicate(standard_input, timeout)
        except BaseException:
            process.kill()
            raise
    return Answer(process.returncode, output, errors.decode("utf-8", "replace").strip())


@cache
def _trusted() -> tuple[str, ...]:
    """Folders of other owners that the user has declared safe. Nothing else of the user's configuration is used."""
    command = ["git", "config", "--global", "--get-all", "safe.directory"]
    listed = _finished(command, None, dict(os.environ), None, GIT_TIMEOUT_SECONDS).output
    folders = text_of(listed).split("\n") if listed else []
    return tuple(word for folder in folders for word in ("-c", f"safe.directory={folder}"))


def text_of(output: bytes) -> str:
    """Without git's final line feed; a path may contain any other character, and even that one."""
    return os.fsdecode(output).removesuffix("\n")


def git_environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _FROM_ENVIRONMENT if name in os.environ}
    return {
        **kept,
        **_TRUE_OBJECTS,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_PAGER": "cat",
        "LC_ALL": "C",
    }


def alternate(path: str) -> str:
    """A path in the list of alternates, quoted if it contains the list's separator or a quote."""
    if os.pathsep not in path and '"' not in path and "\n" not in path:
        return path
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
