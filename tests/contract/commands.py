"""What the command line says of itself: the snapshot, and the reference that closes docs/cli.md."""

import argparse
import json
from pathlib import Path
from typing import Any

from gsd_review_broker.cli.commands import TOPICS, all_modules
from gsd_review_broker.cli.main import build
from gsd_review_broker.cli.registering import Commands

ROOT = Path(__file__).parents[2]
COMMANDS_SNAPSHOT = ROOT / "tests" / "contract" / "commands.json"
COMMANDS_PAGE = ROOT / "docs" / "cli.md"
MARKER = "<!-- From here on made from the code by `make docs`; a test keeps it current. -->\n"
# On every command that talks to a broker, and told once.
SHARED = {"--help", "--json", "--url", "--db", "--config", "--user"}


def parsers() -> dict[str, tuple[argparse.ArgumentParser, str]]:
    """Every command by its whole name, in the order of `tandem --help`, with its summary."""
    _, commands = build(all_modules())
    found: dict[str, tuple[argparse.ArgumentParser, str]] = {}
    for names in TOPICS.values():
        for name in names:
            found |= _with_its_own(commands, name)
    return found


def _with_its_own(commands: Commands, name: str) -> dict[str, tuple[argparse.ArgumentParser, str]]:
    group = commands.groups.get(name)
    if group is None:
        return {name: (commands.parsers[name], commands.summaries[name])}
    return {f"{name} {inner}": (parser, group.summaries[inner]) for inner, parser in group.parsers.items()}


def arguments(parser: argparse.ArgumentParser) -> list[dict[str, Any]]:
    """Not argparse's own help: its layout differs from one Python to the next."""
    return [
        {
            "names": list(action.option_strings) or [action.metavar or action.dest],
            "required": bool(action.required),
            "takes": _value(action),
            "choices": [str(choice) for choice in action.choices] if action.choices else [],
            "help": action.help or "",
        }
        for action in parser._actions
        if "--help" not in action.option_strings
    ]


def _value(action: argparse.Action) -> str | None:
    if not action.option_strings or action.nargs == 0:
        return None
    return str(action.metavar or action.dest.upper())


def commands_text() -> str:
    said = {name: {"summary": summary, "arguments": arguments(parser)} for name, (parser, summary) in parsers().items()}
    return json.dumps(said, indent=1, ensure_ascii=False) + "\n"


def reference() -> str:
    lines = [MARKER, "## Every command", ""]
    known = parsers()
    for topic, names in TOPICS.items():
        lines += [f"### {topic}", ""]
        for name in [one for one in known if one.split()[0] in names]:
            parser, summary = known[name]
            lines += [f"**`tandem {name}`**: {summary}.", "", *_table(parser)]
    return "\n".join(lines).rstrip() + "\n"


def _table(parser: argparse.ArgumentParser) -> list[str]:
    rows = [argument for argument in arguments(parser) if not SHARED.intersection(argument["names"])]
    if not rows:
        return []
    table = ["| | |", "|---|---|"]
    for argument in rows:
        names = ", ".join(f"{name} {argument['takes']}" if argument["takes"] else name for name in argument["names"])
        choices = f"one of {', '.join(argument['choices'])}" if argument["choices"] else ""
        text = "; ".join(filter(None, (argument["help"], choices, "needed" if _is_needed(argument) else "")))
        table.append(f"| `{names}` | {text.replace('|', chr(92) + '|')} |")
    return [*table, ""]


def _is_needed(argument: dict[str, Any]) -> bool:
    return argument["required"] and argument["names"][0].startswith("-")


def commands_page() -> str:
    written = COMMANDS_PAGE.read_text()
    return written[: written.index(MARKER)] + reference()
