"""JSON as no machine writes it: any layout, comments, trailing commas. For hypothesis."""

import json
from typing import Any

from hypothesis import strategies as st

NAMES = ["mcpServers", "gsdreview", "other", "hooks", "SessionStart", "a b", "ключ", "", "//x", "/*"]
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(['"', "\\", "// no", "/* no"])
)
BLANK = st.text(" \t\n", max_size=3) | st.sampled_from(["", "", " ", "\n", "\n  ", "\r\n\t"])
REMARK = st.sampled_from(["// remark\n", "// remark\r\n", "/* remark */", "/* two\n lines */", "/**/"])
GAP = BLANK | st.tuples(BLANK, REMARK, BLANK).map("".join)


def values(names: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return st.recursive(
        SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=8
    )


OBJECTS = st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=5), values(st.sampled_from(NAMES)), max_size=5)


@st.composite
def oddly_written(draw: st.DrawFn, value: Any) -> str:
    text = _written(draw, value, gaps=draw(st.sampled_from([BLANK, GAP])), trailing=draw(st.booleans()))
    mark = draw(st.sampled_from(["", "\ufeff"]))
    return mark + draw(BLANK) + text + draw(BLANK)


def _written(draw: st.DrawFn, value: Any, *, gaps: st.SearchStrategy[str], trailing: bool) -> str:
    def inside(parts: list[str], opening: str, closing: str) -> str:
        body = ",".join(f"{draw(gaps)}{part}{draw(gaps)}" for part in parts)
        end = "," if parts and trailing and draw(st.booleans()) else ""
        return f"{opening}{body}{end}{draw(gaps)}{closing}"

    def written(inner: Any) -> str:
        return _written(draw, inner, gaps=gaps, trailing=trailing)

    match value:
        case dict():
            parts = [f"{json.dumps(k)}{draw(gaps)}:{draw(gaps)}{written(v)}" for k, v in value.items()]
            return inside(parts, "{", "}")
        case list():
            return inside([written(item) for item in value], "[", "]")
        case _:
            return json.dumps(value, ensure_ascii=draw(st.booleans()))
