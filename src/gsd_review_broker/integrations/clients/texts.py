"""What a client's model reads about its role: skills, and commands that a person types. One source for all clients.

Each client has its own places and its own form for them.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources

from gsd_review_broker.domain.words import Audience

_COMMANDS = ("propose", "review", "status")
_SKILLS = ("tandem-proposing", "tandem-reviewing")
_REVIEW = "tandem-review"
_SHELLS = {
    "claude": "Run it in the foreground; Bash stops a command after 120 s.",
    "codex": "If the shell returns while it still runs, poll it until it exits.",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Addressee:
    """A client, as its texts address it."""

    agent_type: str
    reviewer_id: str
    waiting: str = ""
    """What its model must know about waiting, if anything."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    path: tuple[str, ...]
    """Below the client's own folder."""
    content: str


CLAUDE = Addressee(agent_type="claude-code", reviewer_id="claude-reviewer")
CommandForm = Callable[[str, str], Text]


def skills(role: Audience, reader: Addressee) -> tuple[Text, ...]:
    """Only what the endpoint's tools can do."""
    fitting = [name for name, fits in zip(_SKILLS, (role.proposes, role.reviews), strict=True) if fits]
    return tuple(
        Text(path=("skills", name, "SKILL.md"), content=_addressed(_asset("skills", name, "SKILL.md"), reader))
        for name in fitting
    )


def review_skill(runtime: str) -> Text:
    """For GSD's agents. The same text for each runtime, but for what its shell does with a command that waits."""
    content = _asset("skills", _REVIEW, "SKILL.md").replace("{waiting}", _SHELLS[runtime])
    return Text(path=("skills", _REVIEW, "SKILL.md"), content=content)


def commands(role: Audience, form: CommandForm) -> tuple[Text, ...]:
    """No command to review if nothing can be claimed."""
    fits = {"status": True, "propose": role.proposes, "review": role.reviews}
    return tuple(form(name, _asset("commands", f"{name}.md")) for name in _COMMANDS if fits[name])


def claude_command(name: str, source: str) -> Text:
    """A folder of commands gives them their prefix, /tandem:propose."""
    return Text(path=("commands", "tandem", f"{name}.md"), content=source)


def gemini_command(name: str, source: str) -> Text:
    """/tandem:propose. JSON's strings are valid TOML."""
    description, body = _parts(source)
    prompt = body.replace("$ARGUMENTS", "{{args}}")
    lines = (f"{key} = {json.dumps(value)}\n" for key, value in (("description", description), ("prompt", prompt)))
    return Text(path=("commands", "tandem", f"{name}.toml"), content="".join(lines))


def opencode_command(name: str, source: str) -> Text:
    """/tandem-propose."""
    description, body = _parts(source)
    return Text(path=("commands", f"tandem-{name}.md"), content=f"---\ndescription: {description}\n---\n\n{body}")


def _parts(source: str) -> tuple[str, str]:
    """The description in the front matter, and the text below it."""
    _, front, body = source.split("---\n", 2)
    description = next(line for line in front.splitlines() if line.startswith("description: "))
    return description.removeprefix("description: "), body.lstrip("\n")


def _addressed(text: str, reader: Addressee) -> str:
    return (
        text.replace("{agent_type}", reader.agent_type)
        .replace("{reviewer_id}", reader.reviewer_id)
        .replace("{waiting}", f"\n{reader.waiting}\n" if reader.waiting else "")
    )


def _asset(*name: str) -> str:
    return resources.files("gsd_review_broker.integrations").joinpath("assets", *name).read_text("utf-8")
