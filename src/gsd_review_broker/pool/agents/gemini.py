"""Google's Gemini CLI."""

import json

from gsd_review_broker.pool.agents import SERVER, TOOL_TIMEOUT_SECONDS, Launch, LaunchRequest, Login, LoginFile
from gsd_review_broker.pool.output import AgentReport, Event, Spending, calls, finished, text_in

ENVIRONMENT = (
    "GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION", "GOOGLE_GENAI_USE_VERTEXAI",
    "GOOGLE_GENAI_USE_GCA", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_GEMINI_BASE_URL", "GEMINI_CLI_HOME",
)  # fmt: skip
LOGIN = Login(
    variables=("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_GENAI_USE_GCA"),
    files=(LoginFile("GEMINI_CLI_HOME", "", ".gemini/oauth_creds.json"),),
    advice="Sign in once with `gemini`, or set GEMINI_API_KEY where the broker is started.",
)

# A reviewer that waits for work makes the same call again and again; Gemini takes that for a loop and stops.
_MODEL = {"disableLoopDetection": True}


def launch(request: LaunchRequest) -> Launch:
    """Put its settings into its scratch folder.

    Gemini may read the workspace, and shows its model a GEMINI.md from there. No setting prevents that, so the prompt
    explains what such files are.
    """
    server = {
        "httpUrl": request.broker_url,
        "headers": {"Authorization": f"Bearer {request.token}"},
        "trust": True,
        "timeout": TOOL_TIMEOUT_SECONDS * 1000,
    }
    argv = ["gemini"]
    if request.model:
        argv += ["-m", request.model]
    argv += ["--output-format", "stream-json", "--include-directories", request.workspace]
    return Launch(
        argv=tuple(argv),
        environment={"GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_CLI_NO_RELAUNCH": "true"},
        files={".gemini/settings.json": json.dumps({"mcpServers": {SERVER: server}, "model": _MODEL})},
    )


def read_event(event: Event, spending: Spending) -> AgentReport | None:
    match event.get("type"):
        case "tool_use" if "tool_name" in event:
            return AgentReport(doing=calls(text_in(event["tool_name"])))
        case "result":
            return finished(event, spending)
        case _:
            return None
