"""Where things are on this account: the home folder, the variables that clients heed, the project, our own state."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import platformdirs

from gsd_review_broker.config import APPLICATION
from gsd_review_broker.errors import BrokerError, Code


class Client(StrEnum):
    CLAUDE = "claude"
    CODEX = "codex"
    GEMINI = "gemini"
    OPENCODE = "opencode"

    @property
    def title(self) -> str:
        return {"claude": "Claude Code", "codex": "Codex", "gemini": "Gemini CLI", "opencode": "opencode"}[self.value]


class Scope(StrEnum):
    PROJECT = "project"
    USER = "user"


class Role(StrEnum):
    """The endpoints of the broker, as a client is connected to one of them."""

    PROPOSER = "proposer"
    REVIEWER = "reviewer"
    OBSERVER = "observer"
    ALL = "all"

    @property
    def endpoint(self) -> str:
        return "/mcp" if self is Role.ALL else f"/mcp/{self.value}"

    @property
    def proposes(self) -> bool:
        return self in {Role.PROPOSER, Role.ALL}

    @property
    def reviews(self) -> bool:
        return self in {Role.REVIEWER, Role.ALL}


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    home: Path
    variables: Mapping[str, str]
    root: Path | None
    state: Path

    @classmethod
    def here(cls, root: Path | None) -> "Surroundings":
        return cls(
            home=Path.home(),
            variables=os.environ,
            root=root,
            state=Path(platformdirs.user_state_dir(APPLICATION, appauthor=False)),
        )

    def project(self) -> Path:
        if self.root is None:
            raise BrokerError(
                Code.INVALID_ARGUMENT,
                "this folder is in no git repository, so there is no project to set up",
                "Go into one, or use --scope user.",
            )
        return self.root

    def base(self, scope: Scope) -> Path | None:
        """What a receipt is kept for: the project, or None for the account."""
        return self.project() if scope is Scope.PROJECT else None

    def folder(self, variable: str, *default: str) -> Path:
        """A client's own folder, unless its variable names another."""
        named = self.variables.get(variable)
        return Path(named).absolute() if named else self.home.joinpath(*default)
