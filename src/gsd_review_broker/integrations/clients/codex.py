"""OpenAI's Codex: the server's entry with the settings that make its tools visible, skills, and a hook for HTTP."""

from pathlib import Path
from typing import Any

from gsd_review_broker.domain.words import Audience
from gsd_review_broker.integrations.clients import setup
from gsd_review_broker.integrations.clients.setup import Choice, Client, ClientFile, ClientSetup, Environment, Scope
from gsd_review_broker.integrations.formats import ConfigEntry

# For a model that it does not know, Codex would cut a page of a diff at 12,000 characters.
_OUTPUT_TOKENS = 50_000
# Without these the tools are not in the first request, and the longest wait is cut off.
_TOOLS = {"omit_tools_from": ["deferred"], "startup_timeout_sec": 20, "tool_timeout_sec": 270}
# Codex starts its servers with six variables. A broker that is started from here needs these too, for itself and for
# the reviewers of its pool.
_VARIABLES = (
    "BROKER_CONFIG", "BROKER_DB", "BROKER_PORT", "BROKER_TOKEN",
    "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
    "CODEX_HOME", "CODEX_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY",
)  # fmt: skip


def _folder(scope: Scope, around: Environment) -> Path:
    return around.project() / ".codex" if scope is Scope.PROJECT else around.folder("CODEX_HOME", ".codex")


def _server(choice: Choice, around: Environment) -> ClientFile:
    address: dict[str, Any] = {"url": choice.url} if choice.url else {**choice.as_program, "env_vars": list(_VARIABLES)}
    trust = {"default_tools_approval_mode": "approve"} if choice.trust else {}
    entry = ConfigEntry(path=("mcp_servers", setup.SERVER), value={**address, **_TOOLS, **trust})
    return ClientFile(path=_folder(choice.scope, around) / "config.toml", format="toml", entries=(entry,))


def _more(choice: Choice, around: Environment) -> ClientSetup:
    folder = _folder(choice.scope, around)
    limit = ConfigEntry(path=("tool_output_token_limit",), value=_OUTPUT_TOKENS, is_default=True)
    hooks = setup.start_hooks(choice)
    documents = [ClientFile(path=folder / "config.toml", format="toml", entries=(limit,))]
    if hooks:
        documents.append(ClientFile(path=folder / "hooks.json", entries=hooks))
    return ClientSetup(
        documents=tuple(documents),
        assets=setup.assets_below(folder, setup.skills(choice.role, "codex", "codex")),
        notes=tuple(_notes(choice)),
    )


def _notes(choice: Choice) -> list[str]:
    if choice.scope is Scope.USER:
        return []
    notes = ["Codex reads a project's configuration once you trust the project; it asks when you start it there."]
    return [*notes, "Codex runs the hook that starts the broker once you have trusted it."] if choice.url else notes


CLIENT = Client(
    name="codex",
    full_name="Codex",
    server=_server,
    more=_more,
    sentences={
        Audience.PROPOSER: "Propose the staged change, with the skill tandem-proposing.",
        Audience.REVIEWER: "Review what waits for a verdict, with the skill tandem-reviewing.",
    },
)
