"""Google's Gemini CLI: the server's entry, skills and commands."""

from pathlib import Path
from typing import Any

from gsd_review_broker.domain.words import Audience
from gsd_review_broker.integrations.clients import setup
from gsd_review_broker.integrations.clients.setup import Choice, Client, ClientFile, ClientSetup, Environment, Scope
from gsd_review_broker.integrations.formats import ConfigEntry

_WAITING = (
    "Pass `wait_seconds: 240` when you wait. Gemini CLI stops after the same call five times in a row: if four "
    "waits brought nothing, tell the user so, and stop."
)


def _folder(scope: Scope, around: Environment) -> Path:
    return (around.project() if scope is Scope.PROJECT else around.folder("GEMINI_CLI_HOME")) / ".gemini"


def _server(choice: Choice, around: Environment) -> ClientFile:
    address: dict[str, Any] = {"httpUrl": choice.url} if choice.url else choice.as_program
    value = {**address, "timeout": setup.LONGEST_CALL_MS, **({"trust": True} if choice.trust else {})}
    entry = ConfigEntry(path=("mcpServers", setup.SERVER), value=value)
    return ClientFile(path=_folder(choice.scope, around) / "settings.json", entries=(entry,))


def _more(choice: Choice, around: Environment) -> ClientSetup:
    skills = setup.skills(choice.role, "gemini", "gemini-cli", waiting=_WAITING)
    read = (*setup.commands(choice.role, setup.gemini_command), *skills)
    notes = ("Gemini CLI connects once you trust the folder; it asks when you start it there.",)
    return ClientSetup(
        assets=setup.assets_below(_folder(choice.scope, around), read),
        notes=notes if choice.scope is Scope.PROJECT else (),
    )


CLIENT = Client(
    name="gemini",
    full_name="Gemini CLI",
    server=_server,
    more=_more,
    sentences={Audience.PROPOSER: "/tandem:propose", Audience.REVIEWER: "/tandem:review"},
)
