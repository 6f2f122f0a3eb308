"""OpenAI's Codex."""

from typing import Any

from gsd_review_broker.pool.agents import SERVER, TOOL_TIMEOUT_SECONDS, Launch, LaunchRequest, Login, LoginFile
from gsd_review_broker.pool.output import (
    AgentReport,
    Event,
    Spending,
    calls,
    failed,
    message_in,
    object_in,
    short,
    text_in,
    tokens_in,
)

ENVIRONMENT = (
    "CODEX_HOME", "CODEX_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT",
)  # fmt: skip
# OPENAI_API_KEY does not log it in; only providers in its own configuration use that.
LOGIN = Login(
    variables=("CODEX_API_KEY",),
    files=(LoginFile("CODEX_HOME", ".codex", "auth.json"),),
    advice="Run `codex login`, or set CODEX_API_KEY where the broker is started.",
)


def launch(request: LaunchRequest) -> Launch:
    """Run it in its scratch folder. In the workspace it would read AGENTS.md and .codex, which a proposal may have
    written.

    Its sandbox lets it read everywhere and write nowhere.
    """
    server = f"mcp_servers.{SERVER}"
    settings = (
        f"model_reasoning_effort={request.effort}",
        f'{server}.url="{request.broker_url}"',
        f'{server}.bearer_token_env_var="BROKER_TOKEN"',
        f"{server}.required=true",
        f'{server}.default_tools_approval_mode="approve"',
        f'{server}.omit_tools_from=["deferred"]',
        f"{server}.startup_timeout_sec=20",
        f"{server}.tool_timeout_sec={TOOL_TIMEOUT_SECONDS}",
        "tool_output_token_limit=50000",
    )
    argv = ["codex", "exec", "--json", "--sandbox", "read-only", "--ephemeral", "--skip-git-repo-check"]
    argv += ["--color", "never"]
    if request.model:
        argv += ["--model", request.model]
    for setting in settings:
        argv += ["-c", setting]
    return Launch(argv=(*argv, "-C", request.scratch, "-"))


def read_event(event: Event, spending: Spending) -> AgentReport | None:
    match event.get("type"):
        case "item.started" | "item.completed":
            return _item(object_in(event.get("item")))
        case "turn.started" | "thread.started":
            return AgentReport(doing="thinks")
        case "turn.completed":
            usage = spending.add(tokens_in(object_in(event.get("usage"))))
            return AgentReport(doing="has finished its turn", usage=usage)
        case "turn.failed" | "error":
            return failed(message_in(event))
        case _:
            return None


def _item(item: dict[str, Any]) -> AgentReport:
    match item.get("type"):
        case "mcp_tool_call":
            return AgentReport(doing=calls(text_in(item.get("tool"))))
        case "command_execution":
            return AgentReport(doing=short(f"runs {text_in(item.get('command'))}"))
        case "agent_message":
            return AgentReport(doing=short(f"says: {text_in(item.get('text'))}"))
        case "reasoning":
            return AgentReport(doing="thinks")
        case "error":
            # Warnings too; the last one applies.
            return failed(text_in(item.get("message")))
        case _:
            return AgentReport()
