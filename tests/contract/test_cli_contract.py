"""The command line as a contract: every command and option written down, and documented."""

import argparse
import re
from pathlib import Path

import pytest

from gsd_review_broker.cli.commands import HIDDEN, TOPICS, all_modules
from gsd_review_broker.cli.exits import OF_ERROR, Exit
from gsd_review_broker.cli.main import build, overview
from tests.contract.commands import COMMANDS_PAGE, COMMANDS_SNAPSHOT, commands_page, commands_text, parsers

CONTRACT = [
    "propose", "list", "show", "diff", "log", "comment", "message", "resolve", "claim", "release", "approve",
    "request-changes", "counter", "accept", "reject", "apply", "close", "wait", "watch", "stats", "audit", "pool", "db",
    "install", "uninstall", "config", "doctor", "demo", "open", "mcp", "serve", "up", "down", "status",
]  # fmt: skip


def test_the_snapshot_is_what_the_code_says() -> None:
    assert COMMANDS_SNAPSHOT.read_text() == commands_text(), "look at the change, then write it with make docs"


def test_the_reference_is_current() -> None:
    assert COMMANDS_PAGE.read_text() == commands_page(), "make docs writes it again"


def test_every_command_of_the_contract_is_there() -> None:
    listed = {name for names in TOPICS.values() for name in names}
    assert set(CONTRACT) <= listed


def test_the_table_of_commands_names_exactly_what_the_modules_register() -> None:
    _, commands = build(all_modules())
    listed = {name for names in TOPICS.values() for name in names} | set(HIDDEN)
    assert set(commands.summaries) == listed
    for names in TOPICS.values():
        for name, module in names.items():
            _, alone = build([module])
            assert name in alone.summaries, name


@pytest.mark.parametrize("name", CONTRACT)
def test_every_command_is_told_of_in_the_page_by_hand_too(name: str) -> None:
    text = COMMANDS_PAGE.read_text()
    by_hand = text[: text.index("## Every command")]
    assert f"`{name}" in by_hand or f"tandem {name}" in by_hand


def test_every_command_has_json_unless_it_is_for_programs_alone() -> None:
    without = {name for name, (parser, _) in parsers().items() if "--json" not in options(parser)}
    assert without == {"serve", "mcp", "completion", "audit export", "gate claude"}


def options(parser: argparse.ArgumentParser) -> set[str]:
    return {name for action in parser._actions for name in action.option_strings}


def test_every_exit_code_and_the_errors_that_lead_to_it_are_in_the_page() -> None:
    text = COMMANDS_PAGE.read_text()
    for code in Exit:
        assert f"| {int(code)} |" in text
    for error, code in OF_ERROR.items():
        row = next(line for line in text.splitlines() if line.startswith(f"| {int(code)} |"))
        assert f"`{error.value}`" in row, error


def test_help_lists_every_command_with_a_sentence() -> None:
    said = overview()
    for names in TOPICS.values():
        for name in names:
            assert f"\n  {name} " in said
    assert max(map(len, said.splitlines())) <= 100


def test_every_variable_that_the_command_line_reads_is_documented() -> None:
    source = Path(COMMANDS_PAGE).parents[1] / "src" / "gsd_review_broker" / "cli"
    text = COMMANDS_PAGE.read_text()
    named = {name for path in source.rglob("*.py") for name in re.findall(r"\bTANDEM_[A-Z_]+[A-Z]\b", path.read_text())}
    internal = {"TANDEM_DEMO_FOLDER", "TANDEM_DEMO_PAUSE"}
    assert [name for name in sorted(named - internal) if name not in text] == []
