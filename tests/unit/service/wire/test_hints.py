"""What to do next is worded for whoever reads it, and nobody reads another's names."""

import ast
import re
from pathlib import Path

import pytest

import gsd_review_broker
from gsd_review_broker.domain.rules.transitions import Command
from gsd_review_broker.domain.words import Audience
from gsd_review_broker.errors import BrokerError, Code, Next, NextStep
from gsd_review_broker.mcp.tools import REGISTRY
from gsd_review_broker.service.wire.hints import Wording, envelope, hint_of, worded, wording_of

ROOT = Path(gsd_review_broker.__file__).parent
TOOLS = REGISTRY.shown_to(Audience.ALL)
ARGUMENTS = {name for tool in TOOLS.values() for name in tool.arguments.model_fields if "_" in name}
NAMES = re.compile(rf"\b({'|'.join(sorted({*TOOLS, *ARGUMENTS, 'next_cursor', 'affected_files'}))})\b")
COMMANDS = tuple(command.value for command in Command if not command.value.startswith("("))


@pytest.mark.parametrize("kind", list(Next))
def test_a_step_names_tools_to_agents_only(kind: Next) -> None:
    step = NextStep(kind, seconds=7, commands=COMMANDS)
    by_tools, by_commands, on_pages = (worded(step, wording) for wording in Wording)
    assert NAMES.search(by_tools)
    for text in (by_commands, on_pages):
        assert not NAMES.search(text)
        assert text.endswith(".")
        assert "{" not in text
    assert "tandem " not in on_pages
    assert ("7 s" in by_tools) == ("7 s" in by_commands) == ("7 s" in on_pages)


def test_the_words_of_tools_are_what_agents_have_always_read() -> None:
    error = BrokerError(Code.STALE_CLAIM, "m", NextStep(Next.CLAIM_AGAIN))
    assert envelope(error, Wording.TOOLS) == {
        "code": "stale_claim",
        "message": "m",
        "hint": "Your claim is over; claim_review again if you still want to judge it.",
    }
    possible = NextStep(Next.POSSIBLE_NOW, commands=("claim_review", "close_review"))
    assert worded(possible, Wording.TOOLS) == "Possible now: claim_review, close_review."
    assert worded(possible, Wording.COMMANDS) == "Possible now: `tandem claim`, `tandem close`."
    assert worded(possible, Wording.PAGES) == "Possible now: claim it, close it."


def test_a_sentence_that_fits_everybody_is_the_same_for_all() -> None:
    error = BrokerError(Code.BUSY, "m", "Wait.")
    assert {hint_of(error, wording) for wording in Wording} == {"Wait."}


@pytest.mark.parametrize("header", [None, "", "shouting"])
def test_whoever_does_not_say_which_words_it_wants_is_an_agent(header: str | None) -> None:
    assert wording_of(header) is Wording.TOOLS
    assert wording_of("commands") is Wording.COMMANDS


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    return ""


def test_no_hint_that_every_front_end_shows_names_a_tool() -> None:
    # The registry and the endpoints speak to agents only.
    rooms = [path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] not in {"mcp", "client"}]
    named = [
        f"{path.relative_to(ROOT)}: {_text(call.args[2])}"
        for path in rooms
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "BrokerError"
        if len(call.args) == 3 and NAMES.search(_text(call.args[2]))
    ]
    assert named == []
