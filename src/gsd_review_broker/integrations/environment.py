"""Paths on this account: the home folder, the variables that clients use, the project, our own state."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.git.discovery import find_root
from gsd_review_broker.git.program import run_git
from gsd_review_broker.settings import locations


class Scope(StrEnum):
    PROJECT = "project"
    USER = "user"


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    home: Path
    variables: Mapping[str, str]
    root: Path | None
    state: Path

    @classmethod
    def of(cls, folder: Path) -> "Environment":
        return cls(
            home=Path.home(),
            variables=os.environ,
            root=_work_tree(folder),
            state=locations.state_folder() / "installed",
        )

    @property
    def path(self) -> str:
        """Where programs are looked for."""
        return self.variables.get("PATH", os.defpath)

    @property
    def programs(self) -> Path:
        """The folder of the Python that runs this, with the commands of our package."""
        return Path(sys.executable).parent

    def project(self, hint: str = "Go into one, or use --scope user.") -> Path:
        if self.root is None:
            raise BrokerError(
                Code.INVALID_ARGUMENT, "this folder is not in a git repository, so there is no project to set up", hint
            )
        return self.root

    def in_main_work_tree(self) -> "Environment":
        return replace(self, root=find_root(self.root) or self.root) if self.root else self

    def base(self, scope: Scope) -> Path | None:
        """What a receipt is kept for: the project, or None for the account."""
        return self.project() if scope is Scope.PROJECT else None

    def folder(self, variable: str, *default: str) -> Path:
        """A client's own folder, unless its variable names another."""
        named = self.variables.get(variable)
        return Path(named).absolute() if named else self.home.joinpath(*default)


def _work_tree(folder: Path) -> Path | None:
    """The work tree of the folder: a linked worktree has its own files, but shares the main one's broker."""
    try:
        answer = run_git(folder, "rev-parse", "--show-toplevel")
    except (OSError, subprocess.TimeoutExpired):
        return None
    name = os.fsdecode(answer.output).rstrip("\n")
    return Path(os.path.realpath(name)) if answer.code == 0 and name else None
