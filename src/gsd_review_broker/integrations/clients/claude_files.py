"""The texts that Claude Code reads: skills and commands. One source for the installer and for the plugin."""

from dataclasses import dataclass
from importlib import resources

from gsd_review_broker.integrations.environment import ClientRole

_COMMANDS = ("propose", "review", "status")
_SKILLS = ("tandem-proposing", "tandem-reviewing")


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaudeFile:
    installed: tuple[str, ...]
    """Below .claude: a folder of commands gives them their prefix, /tandem:propose."""
    plugin: tuple[str, ...]
    """Below the plugin's folder: there the plugin's name is the prefix."""
    text: str


def of_role(role: ClientRole) -> tuple[ClaudeFile, ...]:
    """Only what the endpoint's tools can do: no /tandem:review if nothing can be claimed."""
    chosen = {"status": True, "propose": role.proposes, "review": role.reviews}
    commands = [
        ClaudeFile(
            installed=("commands", "tandem", f"{name}.md"),
            plugin=("commands", f"{name}.md"),
            text=_text("commands", f"{name}.md"),
        )
        for name in _COMMANDS
        if chosen[name]
    ]
    skills = [
        ClaudeFile(
            installed=("skills", name, "SKILL.md"),
            plugin=("skills", name, "SKILL.md"),
            text=_text("skills", name, "SKILL.md"),
        )
        for name, fits in zip(_SKILLS, (role.proposes, role.reviews), strict=True)
        if fits
    ]
    return (*commands, *skills)


def _text(*name: str) -> str:
    return resources.files("gsd_review_broker.integrations").joinpath("assets", "claude", *name).read_text("utf-8")
