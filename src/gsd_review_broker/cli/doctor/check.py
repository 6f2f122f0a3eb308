"""One result of `tandem doctor`: what was looked at, what was found, and what to do about it."""

from dataclasses import dataclass
from enum import StrEnum


class CheckState(StrEnum):
    GREEN = "green"
    YELLOW = "yellow"
    RED = "red"


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    state: CheckState
    found: str
    hint: str = ""


def green(name: str, found: str, hint: str = "") -> Check:
    return Check(name, CheckState.GREEN, found, hint)


def yellow(name: str, found: str, hint: str) -> Check:
    return Check(name, CheckState.YELLOW, found, hint)


def red(name: str, found: str, hint: str) -> Check:
    return Check(name, CheckState.RED, found, hint)
