"""The table of settings in docs/configuration.md, made from the declarations; `make docs` writes it again."""

import enum
import types
import typing
from collections.abc import Iterator
from typing import Any, NamedTuple

from annotated_types import Ge, Gt, Le
from pydantic.fields import FieldInfo

from gsd_review_broker.settings.owners import Strict, WhoMaySet
from gsd_review_broker.settings.schema import VARIABLE_PREFIX, Section, Settings, inner_section, is_section, owner
from tests.contract.page import ROOT

CONFIGURATION = ROOT / "docs" / "configuration.md"
_BEGIN = "<!-- settings: made from the code by `make docs` -->\n"
_END = "<!-- end of the settings -->\n"
_UNITS = ((1024 * 1024, "MiB"), (1024, "KiB"))


class Setting(NamedTuple):
    """One declared setting."""

    path: tuple[str, ...]
    field: FieldInfo
    owner: WhoMaySet

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def variable(self) -> str:
        return VARIABLE_PREFIX + "__".join(self.path).upper()


def all_settings(section: type[Section] = Settings, path: tuple[str, ...] = ()) -> Iterator[Setting]:
    """Yield the settings in their order. In the path of an agent's settings, <name> stands for the agent."""
    for name, field in section.model_fields.items():
        inner, here = inner_section(field), (*path, name)
        declared = owner(field)
        if inner is not None:
            yield from all_settings(inner, here if is_section(field) else (*here, "<name>"))
        elif declared is not None:
            yield Setting(here, field, declared)


def configuration_page() -> str:
    text = CONFIGURATION.read_text()
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    assert after, f"{CONFIGURATION} has no place for the settings"
    return before + _BEGIN + _table() + _END + after


def _table() -> str:
    rows = ["| setting | default | who may set it | meaning |", "|---|---|---|---|"]
    for setting in all_settings():
        meaning = "; ".join(filter(None, (setting.owner.about, _bounds(setting))))
        rows.append(f"| `{setting.name}` | {_default(setting)} | {_who(setting)} | {meaning} |")
    return "\n".join(rows) + "\n"


def _who(setting: Setting) -> str:
    who = setting.owner.who
    return who.replace("stricter", _word(setting.owner.strictest)) if isinstance(setting.owner, Strict) else who


def _word(value: Any) -> str:
    return f"`{str(value).lower()}`"


def _default(setting: Setting) -> str:
    if setting.owner.default:
        return setting.owner.default
    match setting.field.get_default(call_default_factory=True):
        case None | "" | []:
            return "none"
        case bool(value):
            return _word(value)
        case [*values]:
            return ", ".join(f"`{value}`" for value in values)
        case int(value) if setting.name.endswith("_bytes"):
            size, unit = next(pair for pair in _UNITS if value % pair[0] == 0)
            return f"{value // size} {unit}"
        case value:
            return f"`{value}`"


def _bounds(setting: Setting) -> str:
    """The choices, unless they are explained; or the smallest and the largest value, where the type says less."""
    field = setting.field
    words = [f"`{choice}`" for choice in choices(field.annotation)]
    if words:
        return "" if all(word in setting.owner.about for word in words) else ", ".join(words)
    least = [each.ge for each in field.metadata if isinstance(each, Ge)]
    most = [each.le for each in field.metadata if isinstance(each, Le)]
    assert not any(isinstance(each, Gt) for each in field.metadata)
    if most:
        return f"{least[0]} to {most[0]}"
    return f"at least {least[0]}" if least and least != [1] else ""


def choices(annotation: Any) -> list[str]:
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return [str(member.value) for member in annotation]
    if typing.get_origin(annotation) is typing.Literal:
        return [str(choice) for choice in typing.get_args(annotation)]
    is_union = typing.get_origin(annotation) in {typing.Union, types.UnionType}
    return next(filter(None, map(choices, typing.get_args(annotation))), []) if is_union else []
