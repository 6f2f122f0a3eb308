"""Starts our own Python programs in a folder that is not ours."""

import os
import sys
from collections.abc import Mapping


def command(module: str, *arguments: str) -> list[str]:
    """`-P`: otherwise `-m` looks for modules in the working folder first, which is a repository.

    Any `json.py` or `sitecustomize.py` at its root would run with the user's rights.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def isolated(program: str, *arguments: str) -> list[str]:
    """A short program of the standard library alone: the folder and the environment choose nothing that it imports."""
    return [sys.executable, "-I", "-S", "-c", program, *arguments]


def environment(inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The same for whatever Python the child starts."""
    return {**inherited, "PYTHONSAFEPATH": "1"}
