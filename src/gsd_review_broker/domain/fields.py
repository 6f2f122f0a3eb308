"""Frozen objects by their fields: their names, their values, and quick copies."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import cache
from itertools import repeat
from operator import attrgetter, call
from typing import Any, TypeVar, cast

T = TypeVar("T")


@cache
def field_names(kind: type[Any]) -> tuple[str, ...]:
    """The field names of a dataclass. Inherited fields come first."""
    return tuple(one.name for one in fields(kind))


def values_of(value: Any) -> dict[str, Any]:
    """The fields of a dataclass by name. Unlike asdict, it does not convert the values."""
    return {name: getattr(value, name) for name in field_names(cast("type[Any]", type(value)))}


_Setter = Callable[[Any, Any], None]
_set = cast("Callable[[_Setter, Any, Any], None]", call)


@cache
def _setters(kind: type[Any]) -> tuple[_Setter, ...]:
    return tuple(getattr(kind, name).__set__ for name in field_names(kind))


@cache
def _positions(kind: type[Any]) -> dict[str, int]:
    return {name: position for position, name in enumerate(field_names(kind))}


@cache
def _all_values(kind: type[Any]) -> Callable[[Any], tuple[Any, ...]]:
    return attrgetter(*field_names(kind))


def from_values(kind: type[T], values: Iterable[Any]) -> T:
    """An object with these values, in the order of its fields.

    It bypasses __init__, which takes three times as long for the forty fields of a review. Only for values that were
    a valid object before.
    """
    made = object.__new__(kind)
    # The loop runs in C. The deque keeps nothing.
    deque(map(_set, _setters(kind), repeat(made), values), maxlen=0)
    return made


def copy_with(value: T, **changed: Any) -> T:
    """A copy with these fields changed: dataclasses.replace, in a third of its time."""
    kind = type(value)
    values, positions = list(_all_values(kind)(value)), _positions(kind)
    for name, new in changed.items():
        values[positions[name]] = new
    return from_values(kind, values)
