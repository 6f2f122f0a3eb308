"""The reviewer's prompt: a template from the package or the user's own, with the variables filled in."""

import json
from importlib import resources
from pathlib import Path

from gsd_review_broker.domain.words import Severity
from gsd_review_broker.pool.launch.recipe import LaunchRequest, filled, variables

_PROJECT = " and project={}"


def template(path: Path | None) -> str:
    """Read again at each start, so that a change of the file applies to the next reviewer."""
    if path is not None:
        return path.read_text("utf-8")
    return resources.files("gsd_review_broker.pool.launch").joinpath("prompts", "reviewer.md").read_text("utf-8")


def prompt(text: str, request: LaunchRequest) -> bytes:
    clause = _PROJECT.format(json.dumps(request.project)) if request.project else ""
    values = {**variables(request), "project_clause": clause, "severities": ", ".join(Severity)}
    return filled(text, values).encode("utf-8")
