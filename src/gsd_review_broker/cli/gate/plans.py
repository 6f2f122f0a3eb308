"""`tandem gate check --plan FILE`: is a plan approved as it is? Also where git never sees it, since content decides."""

import os
from collections.abc import Sequence
from pathlib import Path

from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.gate.questions import answer_about
from gsd_review_broker.cli.git.changes import top_level
from gsd_review_broker.cli.render.escapes import visible_block
from gsd_review_broker.client.connection import Json
from gsd_review_broker.domain.gate.refusal import plan_command
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.gate.install import GateSite
from gsd_review_broker.gate.question import plan_versions
from gsd_review_broker.git.program import run_git, text_of


def check_plan(context: Context, file: str) -> int:
    root, name = _place_of(file)
    (row,) = plans_as_they_are(context, root, [name])
    if context.wants_json:
        context.screen.json(row)
    elif row["approved"]:
        context.screen.say(visible_block(f"{row['plan']} is approved as it is (review {', '.join(row['reviews'])})."))
    else:
        context.screen.say(visible_block(f"{row['plan']} is not approved as it is."))
        context.screen.say(f"Next: {plan_command(row['plan'])}")
    return Exit.DONE if row["approved"] else Exit.REFUSED


def plans_as_they_are(context: Context, root: Path, names: Sequence[str]) -> list[Json]:
    """A row for each plan: `plan`, `object`, `approved`, and the `reviews` that approved exactly this content."""
    site = GateSite.of(root)
    empty = text_of(run_git(site.folder, "hash-object", "--stdin").output)
    versions = plan_versions(root, names, empty)
    rows: list[Json] = answer_about(context, site, "status", b"", versions)["plans"] if versions else []
    objects = [os.fsdecode(version.entries[0].object_id) if version.entries else None for version in versions]
    return [{"object": object_id, **row} for object_id, row in zip(objects, rows, strict=True)]


def _place_of(file: str) -> tuple[Path, str]:
    """The work tree, and the path in it."""
    root = top_level(Path.cwd())
    path = Path(os.path.realpath(Path(file).parent)) / Path(file).name
    if root is None or not path.is_relative_to(root) or not path.is_file():
        raise BrokerError(Code.NOT_FOUND, f"{file} is not a file of this repository", "Name the plan's file.")
    return root, path.relative_to(root).as_posix()
