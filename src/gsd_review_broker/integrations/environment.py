"""Paths on this account: the home folder, the variables that clients use, the project, our own state.

Also the address that a client is given when it connects over HTTP: the one at which the right broker answers.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from gsd_review_broker import LOOPBACK
from gsd_review_broker.client import Target, UnreachableError, connect
from gsd_review_broker.client.discovery import answering, described
from gsd_review_broker.domain.words import Audience
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


def running_endpoint(role: Audience, scope: Scope, around: Environment) -> str:
    """Of the broker that serves this project, or this account, at this moment."""
    try:
        broker = connect(_target(scope, around))
    except UnreachableError as error:
        hint = "Start it with `tandem up`, then install again. Without --http, the client starts the broker by itself."
        raise UnreachableError(f"there is no address to write: {error.message}", hint) from error
    broker.connection.close()
    return broker.connection.url + role.endpoint


def given_endpoint(address: str, role: Audience, scope: Scope, around: Environment) -> str:
    """As the user gave it, unless the broker of another repository answers there."""
    endpoint = _checked(address, role)
    broker = answering(endpoint) if urlsplit(endpoint).hostname in LOOPBACK else None
    target = _target(scope, around, url=endpoint)
    if broker is not None and not target.accepts(broker.serves):
        raise BrokerError(
            Code.CONFLICT,
            f"the broker at {broker.connection.url} serves {broker.serves}, not {described(target.locations)}",
            "Leave --url out: the client then finds the broker of its own folder.",
        )
    return endpoint


def _target(scope: Scope, around: Environment, url: str | None = None) -> Target:
    # BROKER_URL names the broker of a running client, and is not meant for a file.
    folder = around.project() if scope is Scope.PROJECT else around.home
    environment = {name: value for name, value in around.variables.items() if name != "BROKER_URL"}
    return Target.of(folder, url=url, user=scope is Scope.USER, environment=environment)


def _checked(address: str, role: Audience) -> str:
    try:
        parts = urlsplit(address)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not address.isprintable() or set(address) & set(" \"'\\<>"):
        raise BrokerError(
            Code.INVALID_ARGUMENT, f"{address!r} is not an http address", "It looks like http://127.0.0.1:8321"
        )
    return address if urlsplit(address).path.rstrip("/") else address.rstrip("/") + role.endpoint
