"""opencode, with any model: PROVIDER/MODEL."""

import json
from typing import Any

from gsd_review_broker.domain.rules.pool import Usage
from gsd_review_broker.pool.agents import AWS, SERVER, TOOL_TIMEOUT_SECONDS, Launch, LaunchRequest, Login, LoginFile
from gsd_review_broker.pool.output import (
    AgentReport,
    Event,
    Spending,
    calls,
    count_in,
    dollars_in,
    failed,
    message_in,
    object_in,
    text_in,
)

_KEYS = (
    "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY",
    "GROQ_API_KEY", "OPENCODE_API_KEY",
)  # fmt: skip
ENVIRONMENT = (*_KEYS, "OPENCODE_CONFIG", "OPENCODE_CONFIG_DIR", *AWS)
LOGIN = Login(
    variables=(*_KEYS, "AWS_ACCESS_KEY_ID", "AWS_BEARER_TOKEN_BEDROCK", "AWS_PROFILE"),
    files=(LoginFile("XDG_DATA_HOME", ".local/share", "opencode/auth.json"),),
    advice="Run `opencode auth login`, or set its provider's key where the broker is started.",
)
_READING = ("read", "grep", "glob", "list", "external_directory")


def launch(request: LaunchRequest) -> Launch:
    """Run it in its scratch folder, like the others; it may read outside of it."""
    configuration = {
        "mcp": {
            SERVER: {
                "type": "remote",
                "url": request.broker_url,
                "enabled": True,
                "oauth": False,
                "timeout": TOOL_TIMEOUT_SECONDS * 1000,
                "headers": {"Authorization": f"Bearer {request.token}"},
            }
        },
        "permission": {"*": "deny", **dict.fromkeys((*_READING, f"{SERVER}_*"), "allow")},
        "autoupdate": False,
        "share": "disabled",
    }
    argv = ["opencode", "run", "--format", "json"]
    if request.model:
        argv += ["-m", request.model]
    return Launch(
        argv=(*argv, "--dir", request.scratch),
        environment={"OPENCODE_CONFIG_CONTENT": json.dumps(configuration)},
    )


def read_event(event: Event, spending: Spending) -> AgentReport | None:
    part = object_in(event.get("part"))
    match event.get("type"):
        case "tool_use":
            return AgentReport(doing=calls(text_in(part.get("tool"))))
        case "step_finish":
            return AgentReport(usage=spending.add(_step(part)))
        case "error":
            return failed(message_in(event))
        case _:
            return None


def _step(part: dict[str, Any]) -> Usage | None:
    tokens = object_in(part.get("tokens"))
    if not tokens:
        return None
    cache = object_in(tokens.get("cache"))
    return Usage(
        input_tokens=sum(map(count_in, (tokens.get("input"), cache.get("read"), cache.get("write")))),
        output_tokens=count_in(tokens.get("output")) + count_in(tokens.get("reasoning")),
        cost_usd=dollars_in(part.get("cost")),
    )
