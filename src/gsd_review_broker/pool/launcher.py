"""Turns "one more reviewer" into a running process: its name, folder, files, environment and prompt."""

import asyncio
import json
import os
import re
import secrets
import shutil
import socket
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from gsd_review_broker import LOOPBACK
from gsd_review_broker.domain.model import Identity, Milliseconds
from gsd_review_broker.domain.rules.pool import Reviewer
from gsd_review_broker.domain.words import ReviewerState, Severity
from gsd_review_broker.errors import BrokerError, Code, Next, NextStep
from gsd_review_broker.files import make_private_folder, write_private
from gsd_review_broker.pool.agents import Launch, LaunchRequest, filled, launch_for, module_of, variables
from gsd_review_broker.pool.output import LogFile
from gsd_review_broker.pool.process import Child
from gsd_review_broker.processes import start_of
from gsd_review_broker.service.wire.broker import LoginState
from gsd_review_broker.settings.names import Agent
from gsd_review_broker.settings.schema import PoolSettings

MARKER = "BROKER_REVIEWER_ID"
POOL_MARKER = "BROKER_POOL"
# Variables that decide how and where a program reaches its model and its files. A broker may have been started without
# them, by a client that passes few variables on.
SURROUNDINGS = (
    *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"),
)
# Variables that every program may see. A reviewer sees nothing else of the broker's environment.
_EVERYBODY = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TMP", "TEMP", "TERM"),
        *SURROUNDINGS,
        "XDG_RUNTIME_DIR",
        *("SYSTEMROOT", "SystemRoot", "ComSpec", "PATHEXT", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "ProgramData"),
    )
)
# Those whose value is one path.
_PATHS = frozenset(
    (
        *("CODEX_HOME", "CLAUDE_CONFIG_DIR", "GEMINI_CLI_HOME", "GOOGLE_APPLICATION_CREDENTIALS", "OPENCODE_CONFIG"),
        *("OPENCODE_CONFIG_DIR", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"),
    )
)
_DRIVE = re.compile(r"([A-Za-z]):[\\/]")


def inside_wsl(path: str) -> str:
    """Return the name of a Windows path inside WSL: C:\\folder is /mnt/c/folder there."""
    drive = _DRIVE.match(path)
    return f"/mnt/{drive[1].lower()}/{path[drive.end() :]}".replace("\\", "/") if drive else path


def environment(launch: Launch, request: LaunchRequest, pool: str) -> dict[str, str]:
    """Return the variables that it may see, what the agent needs, and its identity."""
    inherited = request.inherited
    names = _EVERYBODY.union(request.passed)
    kept = {name: value for name, value in inherited.items() if name in names or name.startswith("LC_")}
    if any(name.lower().endswith("_proxy") for name in kept):
        # The broker is on this machine, so no proxy is used.
        others = inherited.get("NO_PROXY") or inherited.get("no_proxy") or ""
        kept |= dict.fromkeys(("NO_PROXY", "no_proxy"), ",".join(filter(None, (others, *LOOPBACK))))
    own = {
        **launch.environment,
        "BROKER_URL": request.broker_url,
        MARKER: request.reviewer_id,
        "BROKER_TOKEN": request.token,
        POOL_MARKER: pool,
    }
    if request.wsl_distro:
        own["WSLENV"] = _wslenv([*own, *(name for name in kept if name in request.passed)])
    return {**kept, **own}


def _wslenv(names: Iterable[str]) -> str:
    """Name the variables that WSL passes on: `u` from Windows, `p` with the path in it translated."""
    return ":".join(f"{name}/{'up' if name in _PATHS else 'u'}" for name in sorted(set(names)))


_PROJECT = " and project={}"


def template(path: Path | None) -> str:
    """Read again at each start, so that a change of the file applies to the next reviewer."""
    if path is not None:
        return path.read_text("utf-8")
    return resources.files("gsd_review_broker.pool").joinpath("prompts", "reviewer.md").read_text("utf-8")


def prompt(text: str, request: LaunchRequest) -> bytes:
    clause = _PROJECT.format(json.dumps(request.project)) if request.project else ""
    values = {**variables(request), "project_clause": clause, "severities": ", ".join(Severity)}
    return filled(text, values).encode("utf-8")


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
    def __init__(self, settings: PoolSettings, site: PoolSite, inherited: Mapping[str, str] | None = None) -> None:
        self._settings = settings
        self.site = site
        self._inherited = os.environ if inherited is None else inherited

    @property
    def mark(self) -> bytes:
        """Return the mark in the environment of every process of this pool."""
        return f"{POOL_MARKER}={self.site.pool}".encode()

    def name(self, agent: Agent, taken: Collection[str]) -> tuple[Identity, str]:
        """Choose the lowest free number, and eight digits that are unique to this start."""
        number = 1
        while f"{agent}-r{number}" in taken:
            number += 1
        display_name = f"{agent}-r{number}"
        return Identity(f"{display_name}-{secrets.token_hex(4)}"), display_name

    def missing(self, agent: Agent) -> str | None:
        """Say why its program cannot be started, as far as that is known in advance."""
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
        """Raise BrokerError if the program cannot be started. The prompt is not written yet."""
        home = self.site.folder / identity
        request = self._request(agent, project, identity, token, home / _WORK)
        launch = launch_for(request)
        text = prompt(template(self.site.template), request)
        try:
            await asyncio.to_thread(_make_folder, home / _WORK, launch.files)
            child = await Child.start(
                launch.argv,
                environment=environment(launch, request, self.site.pool),
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
            broker_url=self.site.broker_url,
            token=token,
            model=settings.model_of(agent),
            effort=settings.effort_of(agent),
            workspace=(on_windows and settings.workspace_wsl_path) or str(self.site.workspace),
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
        """Return what the broker's environment and the agent's files show of it."""
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
        """Refuse a name that we did not make: it may not name a folder."""
        if not _OUR_NAME.fullmatch(identity):
            raise BrokerError(Code.NOT_FOUND, f"there is no log of {identity[:64]!r}", NextStep(Next.LIST_REVIEWERS))
        return self.site.folder / identity / _LOG

    async def tidy(self, identity: Identity, running: Collection[str]) -> None:
        """Remove its scratch folder; the logs of the last reviewers stay."""
        await asyncio.to_thread(_tidy, self.site.folder, identity, running)


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
