"""Our entry in other people's JSON: in, and out again, with every foreign byte where it was."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsd_review_broker.integrations.formats import (
    MISSING,
    ConfigEntry,
    InvalidConfigError,
    UnfitError,
    applied,
    json_format,
)
from gsd_review_broker.integrations.formats.json_format import JsonFormat
from tests.support.odd_json import OBJECTS, oddly_written

FORM = JsonFormat()
MEMBER = ConfigEntry(path=("mcpServers", "gsdreview"), value={"type": "http", "url": "http://127.0.0.1:8321/mcp"})
ELEMENT = ConfigEntry(path=("hooks", "SessionStart"), value={"hooks": [{"command": "tandem up"}]}, in_list=True)
ENTRIES = st.sampled_from([MEMBER, ELEMENT])


def put(text: str, entry: ConfigEntry = MEMBER) -> str:
    return applied(text, FORM.put(text, entry).edits)


def value_of(text: str) -> Any:
    document = json_format.parse(text)
    return None if document.root is None else document.value(document.root)


def is_fit(value: Any, entry: ConfigEntry) -> bool:
    """Can the entry be set at all?"""
    for key in entry.path[:-1]:
        value = value.get(key, {})
        if not isinstance(value, dict):
            return False
    return not entry.in_list or isinstance(value.get(entry.path[-1], []), list)


def with_entry(value: Any, entry: ConfigEntry) -> Any:
    changed = json.loads(json.dumps(value))
    inner = changed
    for key in entry.path[:-1]:
        inner = inner.setdefault(key, {})
    if not entry.in_list:
        inner[entry.path[-1]] = entry.value
    elif entry.value not in inner.setdefault(entry.path[-1], []):
        inner[entry.path[-1]].append(entry.value)
    return changed


@given(OBJECTS.flatmap(oddly_written))
@pytest.mark.slow
def test_any_layout_is_read_as_json_is(text: str) -> None:
    plain = re.sub(r'("(?:[^"\\]|\\.)*")|//[^\r\n]*|/\*.*?\*/', lambda m: m[1] or "", text, flags=re.DOTALL)
    plain = re.sub(r'("(?:[^"\\]|\\.)*")|,(\s*[}\]])', lambda m: m[1] or m[2], plain.lstrip("\ufeff"))
    assert value_of(text) == json.loads(plain)


@given(st.data(), OBJECTS, ENTRIES)
def test_an_entry_goes_into_any_layout(data: st.DataObject, value: Any, entry: ConfigEntry) -> None:
    text = data.draw(oddly_written(value))
    if not is_fit(value, entry):
        with pytest.raises(UnfitError):
            FORM.put(text, entry)
        return

    placed = FORM.put(text, entry)
    after = applied(text, placed.edits)

    assert value_of(after) == with_entry(value, entry)
    assert FORM.put(after, entry).edits == ()


@given(st.data(), OBJECTS, ENTRIES)
def test_an_entry_is_cut_out_by_what_it_says_too(data: st.DataObject, value: Any, entry: ConfigEntry) -> None:
    text = data.draw(oddly_written(value))
    if not is_fit(value, entry) or not (placed := FORM.put(text, entry)).edits:
        return
    after = applied(text, placed.edits)

    back = applied(after, FORM.take(after, placed))

    assert value_of(back) == value
    assert back.count("remark") == text.count("remark")
    # Only white space in a container that is left empty may differ.
    assert "".join(back.split()) == "".join(text.split())


def test_the_new_member_follows_the_layout_that_is_there() -> None:
    four = '{\n    "mcpServers": {\n        "a": {"command": "x"}  // mine\n    }\n}\n'
    tabs = '{\r\n\t"mcpServers": {\r\n\t\t"a": {},\r\n\t},\r\n}'
    assert put(four) == (
        '{\n    "mcpServers": {\n        "a": {"command": "x"},  // mine\n'
        '        "gsdreview": {\n            "type": "http",\n            "url": "http://127.0.0.1:8321/mcp"\n'
        "        }\n    }\n}\n"
    )
    assert put(tabs) == (
        '{\r\n\t"mcpServers": {\r\n\t\t"a": {},\r\n\t\t"gsdreview": {\r\n\t\t\t"type": "http",\r\n'
        '\t\t\t"url": "http://127.0.0.1:8321/mcp"\r\n\t\t},\r\n\t},\r\n}'
    )
    assert (
        put('{"a":1}') == '{"a":1, "mcpServers": {"gsdreview": {"type": "http", "url": "http://127.0.0.1:8321/mcp"}}}'
    )


@pytest.mark.parametrize("text", ["", "\ufeff", "\n", "// only a remark", "/* x */\n"])
def test_a_file_that_says_nothing_gets_a_whole_object(text: str) -> None:
    after = put(text)
    assert after.startswith(text)
    assert value_of(after) == with_entry({}, MEMBER)


def test_what_others_add_later_stays_when_ours_goes() -> None:
    text = '{\n  "a": 1\n}\n'
    placed = FORM.put(text, MEMBER)
    later = applied(text, placed.edits).replace(
        '"mcpServers": {', '"theme": "dark", // later\n  "mcpServers": {\n    "new": {"command": "x"},'
    )

    back = applied(later, FORM.take(later, placed))

    assert value_of(back) == {"a": 1, "theme": "dark", "mcpServers": {"new": {"command": "x"}}}
    assert "// later" in back


def test_containers_of_ours_go_when_they_are_empty_and_those_of_others_stay() -> None:
    for text in ("{}", '{"mcpServers": {}}'):
        placed = FORM.put(text, MEMBER)
        rewritten = json.dumps(value_of(applied(text, placed.edits)))
        assert value_of(applied(rewritten, FORM.take(rewritten, placed))) == json.loads(text)


def test_a_foreign_value_gives_way_and_comes_back() -> None:
    text = '{"mcpServers": {"gsdreview": {"command" : "mine"}, "z": 1}}'
    placed = FORM.put(text, MEMBER)
    after = applied(text, placed.edits)
    changed = after.replace('"z": 1', '"z": 2')

    assert placed.prior == '{"command" : "mine"}'
    assert applied(changed, FORM.take(changed, placed)) == text.replace('"z": 1', '"z": 2')


def test_an_entry_with_another_address_is_somebody_elses_by_now() -> None:
    placed = FORM.put("{}", MEMBER)
    after = applied("{}", placed.edits)
    theirs = after.replace("127.0.0.1:8321", "example.invalid")
    approved = after.replace('"type": "http"', '"type": "http", "alwaysLoad": true')

    assert FORM.take(theirs, placed) == ()
    assert value_of(applied(approved, FORM.take(approved, placed))) == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "a key in double quotes is expected at line 1, column 2"),
        ('{"a": 1 "b": 2}', "a comma or }"),
        ('{"a": }', "a value is expected"),
        ("{'a': 1}", "a key in double quotes"),
        ('{"a": 01}', "a comma or }"),
        ('{"a": "\\x"}', "invalid escape"),
        ('{"a": "line\nbreak"}', "a value is expected"),
        ('{"a": 1}}', "more after the end"),
        ('{"a": 1,,}', "a key in double quotes"),
        ('{"a": 1 /* open}', "a comma or }"),
        ('{"a": NaN}', "a value is expected"),
        ("[1]", "must be one JSON object"),
        ("null", "must be one JSON object"),
        ('{"a":' * 2_000 + "1" + "}" * 2_000, "nested deeper than"),
    ],
)
def test_what_is_no_json_is_refused_with_its_place(text: str, why: str) -> None:
    with pytest.raises(InvalidConfigError, match=re.escape(why)):
        FORM.put(text, MEMBER)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"mcpServers": []}', "mcpServers is not an object"),
        ('{"mcpServers": null}', "mcpServers is not an object"),
        ('{"mcpServers": {}, "mcpServers": {}}', "mcpServers is there twice"),
        ('{"mcpServers": {"gsdreview": 1, "gsdreview": 2}}', "mcpServers.gsdreview is there twice"),
    ],
)
def test_what_cannot_take_the_entry_is_refused(text: str, why: str) -> None:
    with pytest.raises(UnfitError, match=why):
        FORM.put(text, MEMBER)


def test_a_list_that_is_none_is_refused() -> None:
    with pytest.raises(UnfitError, match=r"hooks\.SessionStart is not a list"):
        FORM.put('{"hooks": {"SessionStart": {}}}', ELEMENT)


def test_numbers_beyond_any_type_are_left_as_they_are() -> None:
    text = '{"n": ' + "9" * 5_000 + ', "e": 1e999}'
    assert put(text).startswith(text[:-1])


def test_null_is_not_the_same_as_missing() -> None:
    assert FORM.find('{"a": null}', ["a"]) is None
    assert FORM.find("{}", ["a"]) is MISSING


def test_a_windows_file_that_changed_since_keeps_no_stray_carriage_return() -> None:
    text = '{\r\n  "a": 1\r\n}\r\n'
    placed = FORM.put(text, MEMBER)
    later = applied(text, placed.edits).replace('"a": 1', '"a": 2')
    assert applied(later, FORM.take(later, placed)) == text.replace('"a": 1', '"a": 2')
    # Somebody's own member behind ours.
    behind = later.removesuffix("\r\n}\r\n") + ',\r\n  "b": 3\r\n}\r\n'
    assert applied(behind, FORM.take(behind, placed)) == '{\r\n  "a": 2,\r\n  "b": 3\r\n}\r\n'
