"""The section `gate` of the user's and the project's file; the stricter values apply.

It imports little: the git hook reads it when no broker answers.
"""

import json
from pathlib import Path
from typing import Any, cast

from gsd_review_broker.domain.gate.policy import GatePolicy, stricter, unreadable


def read_policy(project_file: str | Path | None, user_file: str | Path | None) -> GatePolicy:
    """Never raises: configuration that cannot be read counts as the strictest."""
    try:
        sections = [_section(Path(file)) for file in (user_file, project_file) if file]
        return stricter(*sections)
    except (OSError, ValueError, RecursionError) as error:
        return unreadable(str(error))


def read_policy_file(path: Path) -> GatePolicy:
    """A policy by itself, or a configuration file with a section `gate`. Raises OSError or ValueError."""
    content = _object(path)
    return stricter(_inside(path, content) if "gate" in content else content)


def _section(path: Path) -> dict[str, Any]:
    try:
        return _inside(path, _object(path))
    except FileNotFoundError:
        return {}


def _inside(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    section = content.get("gate", {})
    if not isinstance(section, dict):
        raise ValueError(f"{path}: gate is not an object")  # noqa: TRY004 - what is wrong is the file
    return cast("dict[str, Any]", section)


def _object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        # The gate reads two files; the reader of the message has to know which one to fix.
        raise ValueError(f"{path}: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path}: the file is not a JSON object")  # noqa: TRY004 - the caller handles ValueError
    return cast("dict[str, Any]", content)
