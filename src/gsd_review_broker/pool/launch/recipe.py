"""How a reviewer is started: an argument list, an environment and some files.

Nothing here goes through a shell, and nothing is taken from a proposal.
"""

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Literal

from gsd_review_broker import LOOPBACK
from gsd_review_broker.domain.model import Identity
from gsd_review_broker.domain.text import hidden_in
from gsd_review_broker.domain.words import Severity
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.settings.schema import is_safe

MARKER = "BROKER_REVIEWER_ID"
POOL_MARKER = "BROKER_POOL"
SERVER = "gsdreview"
TOOL_TIMEOUT_SECONDS = 120

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
_VARIABLE = re.compile(r"\{(workspace|model|broker_url|reviewer_id|project|project_clause|agent|severities)\}")


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchRequest:
    """A reviewer that is to be started."""

    agent: str
    reviewer_id: Identity
    broker_url: str
    token: str
    model: str | None
    effort: str
    workspace: str
    # Its working folder: ours, empty, and never the tree that may hold what is proposed.
    scratch: str
    project: str | None = None
    # The user's own argument list instead of the agent's.
    command: tuple[str, ...] | None = None
    wsl_distro: str | None = None
    # The broker's environment, and the names in it that this agent may see.
    inherited: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    passed: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    argv: tuple[str, ...]
    # In addition to what it inherits.
    environment: dict[str, str] = field(default_factory=dict[str, str])
    # In its scratch folder; only its owner can read them.
    files: dict[str, str] = field(default_factory=dict[str, str])


def refuse_unsafe(name: str, value: str, what: Literal["model", "distribution", "path"]) -> str:
    """Refuses an unsafe name."""
    if is_safe(what, value):
        return value
    raise BrokerError(
        Code.INVALID_ARGUMENT,
        f"{name}: {value!r} is not a {what} that can be passed to a program",
        "Give it without quotes, spaces in front, dashes in front, or characters that mean something to a shell.",
    )


def refuse_unprintable(request: LaunchRequest) -> None:
    """No value may start a new line: each goes into a prompt, an argument list or an environment."""
    for name, value in variables(request).items():
        if hidden_in(value):
            raise BrokerError(
                Code.INVALID_ARGUMENT,
                f"{name}: {value!r} holds a line break or another character that cannot be seen",
                "Rename it: it would be written into a reviewer's prompt.",
            )


def filled(text: str, values: Mapping[str, str]) -> str:
    """Each variable once: filled-in text is not expanded again."""
    return _VARIABLE.sub(lambda match: values.get(match[1], match[0]), text)


def variables(request: LaunchRequest) -> dict[str, str]:
    return {
        "workspace": request.workspace,
        "model": request.model or "",
        "broker_url": request.broker_url,
        "reviewer_id": request.reviewer_id,
        "project": request.project or "",
        "agent": request.agent,
    }


def with_own_command(request: LaunchRequest, launch: Launch) -> Launch:
    """The user's argument list, filled in element by element; the agent's environment and files stay."""
    if request.command is None:
        return launch
    values = variables(request)
    return replace(launch, argv=tuple(filled(element, values) for element in request.command))


def through_wsl(launch: Launch, distribution: str) -> Launch:
    """On Windows the agents run in WSL. Its shell parses the line once more, so each element that it would split is
    quoted for it."""
    quoted = (shlex.quote(element) for element in launch.argv)
    return replace(launch, argv=("wsl", "-d", refuse_unsafe("wsl_distro", distribution, "distribution"), "--", *quoted))


def inside_wsl(path: str) -> str:
    """A path of Windows as it is called inside WSL: C:\\folder is /mnt/c/folder there."""
    drive = _DRIVE.match(path)
    return f"/mnt/{drive[1].lower()}/{path[drive.end() :]}".replace("\\", "/") if drive else path


def environment(launch: Launch, request: LaunchRequest, pool: str) -> dict[str, str]:
    """The variables that it may see, what the agent needs, and its identity."""
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
    """WSL passes only the variables on that this one names: `u` from Windows, `p` with the path in it translated."""
    return ":".join(f"{name}/{'up' if name in _PATHS else 'u'}" for name in sorted(set(names)))


_PROJECT = " and project={}"


def template(path: Path | None) -> str:
    """Read again at each start, so that a change of the file applies to the next reviewer."""
    if path is not None:
        return path.read_text("utf-8")
    return resources.files("gsd_review_broker.pool.launch").joinpath("prompts", "reviewer.md").read_text("utf-8")


def prompt(text: str, request: LaunchRequest) -> bytes:
    clause = _PROJECT.format(json.dumps(request.project)) if request.project else ""
    values = {**variables(request), "project_clause": clause, "severities": ", ".join(Severity)}
    return filled(text, values).encode("utf-8")
