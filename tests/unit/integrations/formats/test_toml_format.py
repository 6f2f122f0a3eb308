"""Our table in other people's TOML: in, and out again."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsd_review_broker.integrations.formats import (
    ConfigEntry,
    InvalidConfigError,
    PlacedEntry,
    UnfitError,
    applied,
)
from gsd_review_broker.integrations.formats.toml_format import TomlFormat

FORM = TomlFormat()
ENTRY = ConfigEntry(path=("mcp_servers", "gsdreview"), value={"url": "http://127.0.0.1:8321/mcp", "required": True})
TABLE = '[mcp_servers.gsdreview]\nurl = "http://127.0.0.1:8321/mcp"\nrequired = true\n'
LIVED_IN = """\
# my settings
model = "gpt-5"   # the good one
notes = \"\"\"
[mcp_servers.gsdreview]
is only text here \"\"\"
odd = '''
[not.a.table]'''
list = [
  "a", # ]
  "[b]",
]

[mcp_servers.other]
command = "x"
[mcp_servers.other.env]
"KEY WITH ]" = 'v'

[projects."/home/me/[x]"]
trust_level = "trusted"
"""
PIECES = st.lists(
    st.sampled_from(
        [
            "# remark\n", "\n", "\r\n", "  \n", 'a = "x"\n', "b = [1,\n 2, # ]\n]\n", 'c = """\n[x]\n"""\n',
            "d = '''\n# no\n''''\n", "e = { f = 1 }\n", "g = 2026-01-01\r\n", "h = nan\n", '"i.j" = "\\" ["\n',
        ]
    ),
    unique=True,
)  # fmt: skip
TABLES = st.lists(
    st.sampled_from(
        ["[mcp_servers.a]\nurl = 'x'\n", "[[things]]\nn = 1\n", "[[things]]\n", "[z.'q.r']  # remark\nk = 1\n"]
    )
)


def put(text: str) -> tuple[str, PlacedEntry]:
    placed = FORM.put(text, ENTRY)
    return applied(text, placed.edits), placed


def parsed(text: str) -> dict[str, Any]:
    return tomllib.loads(text.removeprefix("\ufeff"), parse_float=str)


@given(PIECES, TABLES, st.sampled_from(["", "\ufeff"]), st.booleans())
def test_a_table_goes_into_any_file_and_comes_out_to_the_byte(
    pieces: list[str], tables: list[str], mark: str, cut: bool
) -> None:
    text = mark + "".join(pieces + tables)
    text = text.rstrip("\r\n") if cut else text
    try:
        before = parsed(text)
    except tomllib.TOMLDecodeError:
        with pytest.raises(InvalidConfigError):
            FORM.put(text, ENTRY)
        return

    after, placed = put(text)

    assert parsed(after)["mcp_servers"].pop("gsdreview") == ENTRY.value
    assert FORM.put(after, ENTRY).edits == ()
    assert parsed(applied(after, FORM.take(after, placed))) == before


def test_a_file_that_is_lived_in_keeps_every_byte() -> None:
    after, placed = put(LIVED_IN)
    assert after == LIVED_IN + "\n" + TABLE
    assert applied(after, FORM.take(after, placed)) == LIVED_IN


def test_windows_lines_stay_windows_lines() -> None:
    text = LIVED_IN.replace("\n", "\r\n")
    after, placed = put(text)
    assert after == text + "\r\n" + TABLE.replace("\n", "\r\n")
    assert applied(after, FORM.take(after, placed)) == text


def test_what_codex_adds_to_our_table_goes_with_it_and_the_rest_stays() -> None:
    after, placed = put(LIVED_IN)
    later = after + '\n[mcp_servers.gsdreview.tools.create_review]\napproval_mode = "approve"\n\n[tui]\ntheme = "x"\n'
    assert applied(later, FORM.take(later, placed)) == LIVED_IN + '\n[tui]\ntheme = "x"\n'


def test_a_foreign_table_of_our_name_gives_way_and_comes_back() -> None:
    text = '[mcp_servers.gsdreview]  # mine\ncommand = "x"\n\n[tui]\n\n[mcp_servers.gsdreview.env]\nA = "1"\n# end\n'
    after, placed = put(text)
    assert parsed(after) == {"mcp_servers": {"gsdreview": ENTRY.value}, "tui": {}}

    later = after + '\n[new]\nx = "1"\n'
    assert parsed(applied(later, FORM.take(later, placed))) == parsed(text) | {"new": {"x": "1"}}


def test_a_table_with_another_address_is_somebody_elses_by_now() -> None:
    after, placed = put("")
    assert FORM.take(after.replace("8321", "9"), placed) == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('mcp_servers = { other = { command = "x" } }\n', "mcp_servers is not an open table"),
        ('mcp_servers = "x"\n', "mcp_servers is not an open table"),
        ('[mcp_servers]\ngsdreview = { url = "x" }\n', "not as a table of its own"),
        ('mcp_servers.gsdreview.url = "x"\n', "not as a table of its own"),
        ('[mcp_servers.gsdreview.env]\nA = "x"\n', "not as a table of its own"),
    ],
)
def test_what_cannot_take_the_table_is_refused(text: str, why: str) -> None:
    with pytest.raises(UnfitError, match=why):
        FORM.put(text, ENTRY)


@pytest.mark.parametrize("text", ["[", "a = ", "a = 1\na = 2\n", "a = " + "[" * 5_000, "a = 1\r"])
def test_what_is_no_toml_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfigError, match="not valid TOML"):
        FORM.put(text, ENTRY)


def test_an_entry_that_was_rewritten_beyond_recognition_is_not_torn_out() -> None:
    _, placed = put("")
    with pytest.raises(UnfitError, match="cannot be cut out"):
        FORM.take('[mcp_servers]\ngsdreview = { url = "http://127.0.0.1:8321/mcp" }\n', placed)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_table_right_behind_a_byte_order_mark_is_found_and_cut(newline: str) -> None:
    after, placed = put("\ufeff")
    assert after == "\ufeff" + TABLE
    later = after.replace("\n", newline) + f'{newline}[tui]{newline}theme = "x"{newline}'
    assert applied(later, FORM.take(later, placed)) == f'\ufeff{newline}[tui]{newline}theme = "x"{newline}'
    # A foreign table at that place gives way, and comes back.
    foreign = f'\ufeff[mcp_servers.gsdreview]{newline}command = "x"{newline}'
    ours, replaced = put(foreign)
    assert ours.startswith("\ufeff[mcp_servers.gsdreview]")
    assert applied(ours, FORM.take(ours, replaced)) == foreign


def test_in_a_windows_file_that_changed_since_the_empty_line_above_ours_goes_too() -> None:
    text = 'a = 1\r\n\r\n[tui]\r\ntheme = "x"\r\n'
    after, placed = put(text)
    later = after.replace("a = 1", "a = 2")
    assert applied(later, FORM.take(later, placed)) == text.replace("a = 1", "a = 2")
