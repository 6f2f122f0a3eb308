"""Anthropic's Claude Code."""

import json

from gsd_review_broker.pool.launch.recipe import SERVER, TOOL_TIMEOUT_SECONDS, Launch, LaunchRequest

ENVIRONMENT = (
    "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "CLAUDE_CONFIG_DIR", "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLOUD_ML_REGION", "ANTHROPIC_VERTEX_PROJECT_ID",
    "AWS_REGION", "AWS_PROFILE",
)  # fmt: skip
_READING = "Read,Grep,Glob"


def launch(request: LaunchRequest) -> Launch:
    """The token is in the environment. The argument list, which every user can see, has only the variable's name."""
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
    return Launch(argv=tuple(argv), environment={"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"})
