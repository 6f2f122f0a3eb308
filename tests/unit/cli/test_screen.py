"""Tables and colours: for a person on a terminal, and plain for a program."""

import io
import json

import pytest

from gsd_review_broker.cli.broker.watching import exit_of
from gsd_review_broker.cli.describe import LEAST_INTENT, ROW_TITLES
from gsd_review_broker.cli.exits import OF_ERROR, Exit
from gsd_review_broker.cli.screen import Screen, Span, Style, cells, cut
from gsd_review_broker.errors import Code


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    return Terminal()


def test_a_table_is_aligned_on_a_terminal_and_cut_at_its_edge(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    Screen(terminal).table(("ID", "INTENT"), [["1", "short"], ["世界", "a very long intent that goes on and on"]])
    assert terminal.getvalue().splitlines() == [
        "ID    INTENT",
        "1     short",
        "世界  a very long intent that goes on a…",
    ]
    assert max(map(cells, terminal.getvalue().splitlines())) == 40


def test_a_narrow_terminal_shows_the_beginning_of_the_last_column_instead_of_those_before_it(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    row = ["7b1f7f99", "changes_requested", "normal", "1", "", "(my-agent)", "Close the file in every case"]
    Screen(terminal).table(ROW_TITLES, [row], least=LEAST_INTENT)
    assert terminal.getvalue().splitlines() == [
        "ID        STATUS             INTENT",
        "7b1f7f99  changes_requested  Close the …",
    ]
    monkeypatch.setenv("COLUMNS", "100")
    assert Screen(terminal).table_lines(ROW_TITLES, [row], least=LEAST_INTENT)[0].split() == list(
        filter(None, ROW_TITLES)
    )


def test_a_table_in_a_pipe_is_whole_and_separated_by_tabs() -> None:
    out = io.StringIO()
    Screen(out).table(("ID", "INTENT"), [["1", "x" * 200], ["2", "a\tb"]])
    assert out.getvalue() == "1\t" + "x" * 200 + "\n2\ta\\tb\n"


def test_colours_are_for_terminals_that_want_them(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    red = Span("x", Style.RED)
    assert Screen(terminal).painted(red) == "\x1b[31mx\x1b[0m"
    assert Screen(io.StringIO()).painted(red) == "x"
    monkeypatch.setenv("TERM", "dumb")
    assert Screen(terminal).painted(red) == "x"
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert Screen(io.StringIO()).painted(red) == "\x1b[31mx\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Screen(terminal).painted(red) == "x"


def test_json_is_ascii_and_says_exactly_what_was_said() -> None:
    out = io.StringIO()
    value = {"intent": "\x1b]52;c;x\x07 \u202e \ud800 ü"}
    Screen(out).json(value)
    assert out.getvalue().isascii()
    assert "\x1b" not in out.getvalue()
    assert json.loads(out.getvalue()) == value


@pytest.mark.parametrize(
    ("text", "width", "shown"), [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("世界世界", 5, "世界…"), ("", 3, "")]
)
def test_text_is_cut_by_what_it_takes_on_the_screen(text: str, width: int, shown: str) -> None:
    assert cut(text, width) == shown


def test_every_error_code_has_an_exit_code_of_the_contract() -> None:
    assert set(OF_ERROR) == set(Code)
    assert set(OF_ERROR.values()) <= {1, 2, 3, 4, 5, 6, 7}
    assert [int(code) for code in Exit] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 130, 141]


@pytest.mark.parametrize(
    ("status", "verdict", "code"),
    [
        ("pending", None, 8),
        ("claimed", None, 8),
        ("in_review", None, 8),
        ("approved", "approved", 0),
        ("changes_requested", "changes_requested", 5),
        ("closed", "approved", 0),
        ("closed", "changes_requested", 5),
        ("closed", None, 5),
    ],
)
def test_a_review_ends_a_wait_with_the_code_of_its_verdict(status: str, verdict: str | None, code: int) -> None:
    assert exit_of({"status": status, "verdict": verdict}) == code


def test_nothing_that_is_written_moves_the_terminal() -> None:
    odd = "a\x1b[2Jb\x9bc\u202ed\re"
    out, err = io.StringIO(), io.StringIO()
    screen = Screen(out, err)
    screen.say(odd)
    screen.block(odd)
    screen.table(("A", "B"), [[odd, Span(odd)]])
    screen.warn(odd, Span(odd, Style.RED))
    for written in (out.getvalue(), err.getvalue()):
        assert "b" in written
        assert not set(written) & set("\x1b\x9b\u202e\r")
