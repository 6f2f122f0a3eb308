"""Turns "one more reviewer" into a running process: its name, folder, files, environment and prompt."""

import asyncio
import os
import re
import secrets
import shutil
import socket
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from gsd_review_broker.domain.model import Identity, Milliseconds
from gsd_review_broker.domain.rules.pool import Reviewer
from gsd_review_broker.domain.words import ReviewerState
from gsd_review_broker.errors import BrokerError, Code, Next, NextStep
from gsd_review_broker.files import make_private_folder, write_private
from gsd_review_broker.pool.child.output import LogFile
from gsd_review_broker.pool.child.process import Child
from gsd_review_broker.pool.launch.agents import launch_for, module_of
from gsd_review_broker.pool.launch.recipe import (
    POOL_MARKER,
    SURROUNDINGS,
    LaunchRequest,
    environment,
    inside_wsl,
    prompt,
    template,
)
from gsd_review_broker.processes import start_of
from gsd_review_broker.service.wire.broker import LoginState
from gsd_review_broker.settings.agents import Agent
from gsd_review_broker.settings.schema import PoolSettings

_LOGS_KEPT = 20
_LOG = "output.log"
_WORK = "work"
# The names that `name` makes, for any agent; nothing else may name a folder.
_OUR_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*-r\d+-[0-9a-f]{8}")


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolSite:
    """The pool's surroundings: the broker's address, what reviewers read, where their folders are."""

    broker_url: str
    workspace: Path
    folder: Path
    template: Path | None
    # Distinguishes this broker's children from those of another.
    pool: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StartedReviewer:
    reviewer: Reviewer
    child: Child
    prompt: bytes


def host_name() -> str:
    return socket.gethostname()[:200]


class Launcher:
    def __init__(self, settings: PoolSettings, place: PoolSite, inherited: Mapping[str, str] | None = None) -> None:
        self._settings = settings
        self._place = place
        self._inherited = os.environ if inherited is None else inherited

    @property
    def pool(self) -> str:
        return self._place.pool

    @property
    def folder(self) -> Path:
        return self._place.folder

    @property
    def mark(self) -> bytes:
        """The mark in the environment of every process of this pool."""
        return f"{POOL_MARKER}={self._place.pool}".encode()

    def name(self, agent: Agent, taken: Collection[str]) -> tuple[Identity, str]:
        """The lowest free number, and eight digits that are unique to this start."""
        number = 1
        while f"{agent}-r{number}" in taken:
            number += 1
        display_name = f"{agent}-r{number}"
        return Identity(f"{display_name}-{secrets.token_hex(4)}"), display_name

    def missing(self, agent: Agent) -> str | None:
        """Why its program cannot be started, as far as that is known in advance."""
        command = self._settings.settings_of(agent).command
        program = command[0] if command else agent
        if sys.platform == "win32" and not command:
            program = "wsl"
        if shutil.which(program, path=self._inherited.get("PATH")):
            return None
        return f"the program {program!r} of agent {agent} was not found on the PATH"

    async def start(
        self, agent: Agent, project: str | None, *, identity: Identity, display_name: str, token: str
    ) -> StartedReviewer:
        """Raises BrokerError if the program cannot be started. The prompt is not written yet."""
        home = self._place.folder / identity
        request = self._request(agent, project, identity, token, home / _WORK)
        launch = launch_for(request)
        text = prompt(template(self._place.template), request)
        try:
            await asyncio.to_thread(_make_folder, home / _WORK, launch.files)
            child = await Child.start(
                launch.argv,
                environment=environment(launch, request, self._place.pool),
                folder=home / _WORK,
                log=LogFile(home / _LOG),
                secret=token,
            )
        except (OSError, ValueError) as error:
            raise BrokerError(
                Code.UNAVAILABLE,
                f"{display_name} could not be started: {self.missing(agent) or error}",
                f"Install {agent}, or name its program in reviewer_pool.agents.{agent}.command.",
            ) from error
        reviewer = Reviewer(
            id=identity,
            display_name=display_name,
            agent=agent,
            model=request.model,
            project=project,
            state=ReviewerState.ACTIVE,
            host=host_name(),
            pid=child.pid,
            process_start=await asyncio.to_thread(start_of, child.pid),
            started_at=Milliseconds(0),
        )
        return StartedReviewer(reviewer=reviewer, child=child, prompt=text)

    def _request(
        self, agent: Agent, project: str | None, identity: Identity, token: str, scratch: Path
    ) -> LaunchRequest:
        settings = self._settings
        command = settings.settings_of(agent).command
        on_windows = sys.platform == "win32"
        return LaunchRequest(
            agent=agent,
            reviewer_id=identity,
            broker_url=self._place.broker_url,
            token=token,
            model=settings.model_of(agent),
            effort=settings.effort_of(agent),
            workspace=(on_windows and settings.workspace_wsl_path) or str(self._place.workspace),
            scratch=inside_wsl(str(scratch)) if on_windows and not command else str(scratch),
            project=project,
            command=tuple(command) if command else None,
            wsl_distro=settings.wsl_distro if on_windows and not command else None,
            inherited=self._inherited,
            passed=self._passed(agent),
        )

    def _passed(self, agent: Agent) -> frozenset[str]:
        return frozenset((*module_of(agent).ENVIRONMENT, *self._settings.environment))

    def login(self, agent: Agent) -> LoginState:
        """What the broker's environment and the agent's files show of it."""
        login = module_of(agent).LOGIN
        names = (*self._passed(agent), *SURROUNDINGS)
        is_elsewhere = self._settings.settings_of(agent).command is not None or sys.platform == "win32"
        is_hidden = login is None or (login.in_keychain and sys.platform == "darwin")
        return {
            # Nothing is known about a program of the user's own.
            "known": not is_elsewhere and not is_hidden,
            # The variable or file that logs the agent in.
            "seen": None if login is None else login.seen(self._inherited),
            "advice": "" if login is None else login.advice,
            "passed": sorted(names),
            "present": sorted(name for name in names if self._inherited.get(name)),
        }

    def log_path(self, identity: Identity) -> Path:
        """Only names that we made ourselves may name a folder."""
        if not _OUR_NAME.fullmatch(identity):
            raise BrokerError(Code.NOT_FOUND, f"there is no log of {identity[:64]!r}", NextStep(Next.LIST_REVIEWERS))
        return self._place.folder / identity / _LOG

    async def tidy(self, identity: Identity, running: Collection[str]) -> None:
        """Remove its scratch folder; the logs of the last reviewers stay."""
        await asyncio.to_thread(_tidy, self._place.folder, identity, running)


def _make_folder(folder: Path, files: Mapping[str, str]) -> None:
    make_private_folder(folder.parent)
    folder.mkdir(mode=0o700)
    for name, content in files.items():
        path = folder / name
        make_private_folder(path.parent)
        write_private(path, content.encode())


def _tidy(folder: Path, identity: Identity, running: Collection[str]) -> None:
    shutil.rmtree(folder / identity / _WORK, ignore_errors=True)
    try:
        ended = [home for home in folder.iterdir() if home.name not in running]
        old = sorted(ended, key=lambda home: home.stat().st_mtime, reverse=True)[_LOGS_KEPT:]
    except OSError:
        return
    for home in old:
        shutil.rmtree(home, ignore_errors=True)
