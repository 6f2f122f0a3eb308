"""`tandem gate check --plan FILE`: is a plan approved as it is? Also where git never sees it, since content decides.

A plan's approval is that of a change: from nothing, or from an earlier version, to this content. The gate is asked
about each of these changes, as if it were a commit."""

import os
import stat
from pathlib import Path

from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.gate.questions import answer_about
from gsd_review_broker.cli.git.changes import top_level
from gsd_review_broker.cli.render.escapes import visible_block
from gsd_review_broker.client.connection import Json
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.gate.install import GateSite
from gsd_review_broker.git.program import run_git, run_users_git, text_of

_MOST_VERSIONS = 50
_BY_REVIEW = frozenset({"review", "reviews", "range"})


def check_plan(context: Context, file: str) -> int:
    site = GateSite.of(Path.cwd())
    name, version = _version_of(file)
    rows: list[Json] = answer_about(context, site, "status", _changes(site, name, version))["commits"]
    reviews = sorted({review for row in rows if row.get("because") in _BY_REVIEW for review in row["reviews"]})
    result = {"plan": name, "object": version.split()[1], "approved": bool(reviews), "reviews": reviews}
    if context.wants_json:
        context.screen.json(result)
    elif reviews:
        context.screen.say(visible_block(f"{name} is approved as it is (review {', '.join(reviews)})."))
    else:
        context.screen.say(visible_block(f"{name} is not approved as it is.{_why(rows)}"))
        context.screen.say(
            visible_block(f'Next: tandem propose --path {name} -m "WHAT AND WHY" --category plan_review --wait')
        )
    return Exit.DONE if reviews else Exit.REFUSED


def _why(rows: list[Json]) -> str:
    is_exempt = any(row.get("because") == "exempt" for row in rows)
    return " gate.exempt_paths names it, so the gate keeps no approvals of it." if is_exempt else ""


def _version_of(file: str) -> tuple[str, str]:
    """Its path in the repository, and `mode id`, as git would store it."""
    root = top_level(Path.cwd())
    path = Path(os.path.realpath(Path(file).parent)) / Path(file).name
    if root is None or not path.is_relative_to(root) or not path.is_file():
        raise BrokerError(Code.NOT_FOUND, f"{file} is not a file of this repository", "Name the plan's file.")
    name = path.relative_to(root).as_posix()
    answer = run_users_git(root, "hash-object", f"--path={name}", "--", str(path))
    if answer.code != 0:
        raise BrokerError(Code.INVALID_ARGUMENT, f"git hash-object: {answer.why}", "See that the file can be read.")
    mode = "100755" if path.stat().st_mode & stat.S_IXUSR else "100644"
    return name, f"{mode} {text_of(answer.output)}"


def _changes(site: GateSite, name: str, version: str) -> bytes:
    """From nothing, and from each version that git has had, to this one: in the form of `git log`, with made-up ids."""
    nothing = f"000000 {'0' * len(version.split()[1])}"
    earlier = dict.fromkeys([nothing, *(one for one in _history(site, name) if one != version)])
    new_mode, new_id = version.split()
    log = b""
    for number, old in enumerate(earlier, 1):
        old_mode, old_id = old.split()
        kind = "A" if old == nothing else "M"
        head = f"{number:0{len(new_id)}x} {'0' * len(new_id)} \0plan\0\n"
        log += f"{head}:{old_mode} {new_mode} {old_id} {new_id} {kind}\0{name}\0".encode("utf-8", "surrogateescape")
    return log


def _history(site: GateSite, name: str) -> list[str]:
    """`mode id` of each version in the history of HEAD."""
    answer = run_git(
        site.folder, "log", f"--max-count={_MOST_VERSIONS}", "--format=", "--raw", "--no-abbrev", "--no-renames",
        "HEAD", "--", f":(top,literal){name}",
    )  # fmt: skip
    rows = [line.split()[:4] for line in os.fsdecode(answer.output).split("\n") if line.startswith(":")]
    versions = [
        pair for old_mode, new_mode, old_id, new_id in rows for pair in ((old_mode[1:], old_id), (new_mode, new_id))
    ]
    return [f"{mode} {object_id}" for mode, object_id in versions if mode != "000000"]
