"""Google's Gemini CLI: the server's entry, skills and commands."""

from pathlib import Path
from typing import Any

from gsd_review_broker.domain.words import Audience
from gsd_review_broker.integrations.clients.setup import (
    LONGEST_CALL_MS,
    SERVER,
    Addressee,
    Choice,
    Client,
    ClientSetup,
    Environment,
    Scope,
    ServerEntry,
    assets_below,
    commands,
    gemini_command,
    skills,
)

_READER = Addressee(
    agent_type="gemini-cli",
    reviewer_id="gemini-reviewer",
    waiting="Pass `wait_seconds: 240` when you wait. Gemini CLI stops after the same call five times in a row: if four "
    "waits brought nothing, tell the user so, and stop.",
)


def _folder(scope: Scope, around: Environment) -> Path:
    return (around.project() if scope is Scope.PROJECT else around.folder("GEMINI_CLI_HOME")) / ".gemini"


def _file(scope: Scope, around: Environment) -> Path:
    return _folder(scope, around) / "settings.json"


def _value(choice: Choice) -> dict[str, Any]:
    address = {"httpUrl": choice.url} if choice.url else choice.as_program
    return {**address, "timeout": LONGEST_CALL_MS, **({"trust": True} if choice.trust else {})}


def _more(choice: Choice, around: Environment) -> ClientSetup:
    read = (*commands(choice.role, gemini_command), *skills(choice.role, _READER))
    notes = ("Gemini CLI connects once you trust the folder; it asks when you start it there.",)
    return ClientSetup(
        assets=assets_below(_folder(choice.scope, around), read),
        notes=notes if choice.scope is Scope.PROJECT else (),
    )


CLIENT = Client(
    name="gemini",
    full_name="Gemini CLI",
    server=ServerEntry(file=_file, path=("mcpServers", SERVER), value=_value),
    more=_more,
    sentences={Audience.PROPOSER: "/tandem:propose", Audience.REVIEWER: "/tandem:review"},
)
