"""Anthropic's Claude Code."""

import json
from typing import Any, cast

from gsd_review_broker.pool.agents import AWS, SERVER, TOOL_TIMEOUT_SECONDS, Launch, LaunchRequest, Login, LoginFile
from gsd_review_broker.pool.output import (
    AgentReport,
    Event,
    Spending,
    calls,
    finished,
    list_in,
    object_in,
    short,
    text_in,
    tokens_in,
)

ENVIRONMENT = (
    "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "CLAUDE_CONFIG_DIR", "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLOUD_ML_REGION", "ANTHROPIC_VERTEX_PROJECT_ID",
    "ANTHROPIC_CUSTOM_HEADERS", *AWS,
)  # fmt: skip
_CREDENTIALS = LoginFile("CLAUDE_CONFIG_DIR", ".claude", ".credentials.json")
_SETTINGS = LoginFile("CLAUDE_CONFIG_DIR", ".claude", "settings.json", holding=("apiKeyHelper", "ANTHROPIC_"))
# How the user logs in, in the user's own settings. Nothing else of them is passed on.
_LOGIN_SETTINGS = ("apiKeyHelper", "awsAuthRefresh", "awsCredentialExport", "gcpAuthRefresh", "forceLoginMethod")
LOGIN = Login(
    variables=(
        *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
        *("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"),
    ),
    files=(_CREDENTIALS, _SETTINGS),
    in_keychain=True,
    advice="Run `claude` and sign in, or set ANTHROPIC_API_KEY where the broker is started.",
)
_READING = "Read,Grep,Glob"
_FILE = "login-settings.json"


def launch(request: LaunchRequest) -> Launch:
    """Keep the token in the environment: every user can see the argument list, which has only the variable's name."""
    server = {
        "type": "http",
        "url": request.broker_url,
        "alwaysLoad": True,
        "timeout": TOOL_TIMEOUT_SECONDS * 1000,
        "headers": {"Authorization": "Bearer ${BROKER_TOKEN}"},
    }
    argv = ["claude", "-p"]
    if request.model:
        argv += ["--model", request.model]
    argv += ["--output-format", "stream-json", "--verbose", "--no-session-persistence", "--strict-mcp-config"]
    argv += ["--mcp-config", json.dumps({"mcpServers": {SERVER: server}}, separators=(",", ":"))]
    argv += ["--permission-mode", "dontAsk", "--tools", _READING]
    argv += ["--allowedTools", f"mcp__{SERVER},{_READING}", "--restricted", "--effort", request.effort]
    argv += ["--add-dir", request.workspace]
    files: dict[str, str] = {}
    if login := _users_login(request):
        # In a file that only its owner can read, since it may hold a key.
        files[_FILE] = json.dumps(login)
        argv += ["--settings", f"{request.scratch}/{_FILE}"]
    return Launch(argv=tuple(argv), environment={"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}, files=files)


def _users_login(request: LaunchRequest) -> dict[str, Any]:
    """Return how the user logs in, which `--restricted` ignores with all settings of the user's."""
    try:
        text = _SETTINGS.path(request.inherited).read_text("utf-8")
        settings = cast("dict[str, Any]", json.loads(text))
        kept = {name: settings[name] for name in _LOGIN_SETTINGS if name in settings}
        variables = settings.get("env", {})
        named = {name: value for name, value in variables.items() if name in request.passed}
    except (OSError, ValueError, TypeError, AttributeError):
        # Claude says itself what is wrong with its settings.
        return {}
    return {**kept, "env": named} if named else kept


def read_event(event: Event, spending: Spending) -> AgentReport | None:
    """Add up usage: Claude reports a message's with each of its parts, and the total when it stops."""
    match event.get("type"):
        case "assistant":
            message = object_in(event.get("message"))
            usage = spending.of_message(text_in(message.get("id")), tokens_in(object_in(message.get("usage"))))
            return AgentReport(doing=_doing(message), usage=usage)
        case "result":
            return finished(event, spending)
        case _:
            return None


def _doing(message: dict[str, Any]) -> str | None:
    parts = [object_in(part) for part in list_in(message.get("content"))]
    tools = [text_in(part.get("name")) for part in parts if part.get("type") == "tool_use"]
    texts = [text_in(part.get("text")) for part in parts if part.get("type") == "text"]
    return calls(tools[-1]) if tools else short(f"says: {texts[-1]}") if texts else None
