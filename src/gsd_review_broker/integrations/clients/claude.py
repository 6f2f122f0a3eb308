"""Anthropic's Claude Code: the server's entry, a hook, skills and commands."""

import shlex
from pathlib import Path
from typing import Any

from gsd_review_broker.domain.words import Audience
from gsd_review_broker.integrations.clients import setup
from gsd_review_broker.integrations.clients.setup import Choice, Client, ClientFile, ClientSetup, Environment, Scope
from gsd_review_broker.integrations.formats import ConfigEntry


def _server(choice: Choice, around: Environment) -> ClientFile:
    in_project = choice.scope is Scope.PROJECT
    path = around.project() / ".mcp.json" if in_project else around.folder("CLAUDE_CONFIG_DIR") / ".claude.json"
    value = {"type": "http", "url": choice.url} if choice.url else {"type": "stdio", **choice.as_program}
    return ClientFile(path=path, entries=(ConfigEntry(path=("mcpServers", setup.SERVER), value=value),))


def _more(choice: Choice, around: Environment) -> ClientSetup:
    in_project = choice.scope is Scope.PROJECT
    folder = around.project() / ".claude" if in_project else around.folder("CLAUDE_CONFIG_DIR", ".claude")
    read = (*setup.commands(choice.role, setup.claude_command), *setup.skills(choice.role, "claude", "claude-code"))
    return ClientSetup(
        documents=_settings(choice, folder),
        assets=setup.assets_below(folder, read),
        notes=tuple(_notes(choice)) if in_project else (),
    )


def _notes(choice: Choice) -> list[str]:
    if choice.trust:
        return []
    return ["Claude Code asks once whether to use the server of the project's .mcp.json; with --trust it does not ask."]


def _settings(choice: Choice, folder: Path) -> tuple[ClientFile, ...]:
    """Trust is personal: in a project it goes into the settings that are not shared."""
    hooks = (*setup.start_hooks(choice), *(_gate_hooks(choice) if choice.gate else ()))
    allowed = ConfigEntry(path=("permissions", "allow"), value=f"mcp__{setup.SERVER}", in_list=True)
    if choice.trust and choice.scope is Scope.USER:
        hooks = (*hooks, allowed)
    settings = ClientFile(path=folder / "settings.json", entries=hooks)
    if not choice.trust or choice.scope is Scope.USER:
        return (settings,)
    enabled = ConfigEntry(path=("enabledMcpjsonServers",), value=setup.SERVER, in_list=True)
    local = ClientFile(path=folder / "settings.local.json", entries=(enabled, allowed), personal=True)
    return settings, local


def _gate_hooks(choice: Choice) -> tuple[ConfigEntry, ...]:
    before = {"matcher": "Bash", "hooks": [_gate_hook(choice, "pre-tool-use", only="git")]}
    stopping = {"hooks": [_gate_hook(choice, "stop", only="")]}
    return (
        ConfigEntry(path=("hooks", "PreToolUse"), value=before, in_list=True),
        ConfigEntry(path=("hooks", "Stop"), value=stopping, in_list=True),
    )


def _gate_hook(choice: Choice, event: str, *, only: str) -> dict[str, Any]:
    """Claude Code goes on if a hook's program is missing or fails, unless it exits with 2. Events without the word
    cost no start of Python."""
    program = shlex.join([choice.tandem, "gate", "claude", event])
    problem = f"tandem gate: refused, because `{program}` failed. Install gsd-review-broker, or remove this hook."
    check = f'printf %s "$event" | {program} || {{ echo {shlex.quote(problem)} >&2; exit 2; }}'
    command = f"event=$(cat); case $event in *{only}*) {check};; esac"
    return {"type": "command", "command": command, "timeout": setup.HOOK_TIMEOUT}


CLIENT = Client(
    name="claude",
    full_name="Claude Code",
    server=_server,
    more=_more,
    sentences={Audience.PROPOSER: "/tandem:propose", Audience.REVIEWER: "/tandem:review"},
)
