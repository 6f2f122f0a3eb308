"""The one place where git is started: by broker, command line, demo and benchmarks. The gate's hook cannot afford
these imports; it starts git through `git/command`, with the same options and the same environment.

git runs alone: with nothing of the user's or the system's configuration, and no program but itself. What the
repository's own configuration could change is set there, or is harmless (see `OPTIONS`). A claim goes further and runs
git in an empty repository beside the real one, where the real one's configuration does not apply at all.

Every command imports this module, so it imports `subprocess` only when git is started.
"""

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gsd_review_broker.git.command import AS_IT_IS, NO_PROGRAMS, OPTIONS, TRUE_OBJECTS, git_environment

if TYPE_CHECKING:
    import subprocess

GIT_TIMEOUT_SECONDS = 30.0
_LONGEST_COMPLAINT = 4_000


class Answer(NamedTuple):
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
        """Return git's complaint, or how git ended if it crashed without a message."""
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
    """Run git to its end, without the user's or the system's configuration, and no program but git itself."""
    command = [*git_command(), *arguments]
    return _finished(command, folder, {**git_environment(), **(environment or {})}, standard_input, timeout)


def run_users_git(
    folder: str | Path,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    timeout: float | None = None,
    hooks: bool = False,
) -> Answer:
    """Run git with the user's configuration and environment, since it is about the user's work tree: what is ignored,
    and how files are converted. No monitor runs, no hook without `hooks`, and objects are still what their ids say."""
    command = ["git", *(() if hooks else NO_PROGRAMS), *AS_IT_IS, *arguments]
    return _finished(command, folder, {**os.environ, **TRUE_OBJECTS, **(environment or {})}, None, timeout)


def run_users_git_config(folder: str | Path | None, *arguments: str) -> Answer:
    """Run `git config` as the user does, who decides which hooks run and which folders are safe."""
    return _finished(["git", "config", *arguments], folder, dict(os.environ), None, GIT_TIMEOUT_SECONDS)


def start_git(folder: str | Path, *arguments: str, environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Start a git that answers several questions; the caller stops it."""
    import subprocess  # noqa: PLC0415 - most commands never start git

    return subprocess.Popen(
        [*git_command(), *arguments],
        cwd=folder,
        env={**git_environment(), **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def git_command() -> list[str]:
    return ["git", *OPTIONS, *_trusted()]


def _finished(
    command: list[str],
    folder: str | Path | None,
    environment: dict[str, str],
    standard_input: bytes | None,
    timeout: float | None,
) -> Answer:
    import subprocess  # noqa: PLC0415 - most commands never start git

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
    """List folders of other owners that the user has declared safe; nothing else of that configuration is used."""
    listed = run_users_git_config(None, "--global", "--get-all", "safe.directory").output
    folders = text_of(listed).split("\n") if listed else []
    return tuple(word for folder in folders for word in ("-c", f"safe.directory={folder}"))


def text_of(output: bytes) -> str:
    """Remove git's final line feed; a path may contain any other character, and even that one."""
    return os.fsdecode(output).removesuffix("\n")
