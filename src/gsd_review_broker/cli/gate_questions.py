"""The questions of `tandem gate check` and `tandem gate status` to the broker, or without one to the database file."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gsd_review_broker.cli.changes import top_level
from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.screen import visible_block
from gsd_review_broker.client import UnreachableError
from gsd_review_broker.client.connection import Json
from gsd_review_broker.domain.gate.policy import GatePolicy, Mode, strictest
from gsd_review_broker.domain.gate.refusal import plan_command
from gsd_review_broker.domain.gate.request import PlanVersion, parse_request, plan_line
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.gate import database_file, hook, install
from gsd_review_broker.gate.question import plan_versions
from gsd_review_broker.gate.remote import ELSEWHERE
from gsd_review_broker.gate.reports import report_landed
from gsd_review_broker.git.command import places
from gsd_review_broker.git.discovery import root_commit
from gsd_review_broker.git.program import run_git, text_of
from gsd_review_broker.settings import locations
from gsd_review_broker.settings.gate import read_policy

_CONTENT_TYPE = "application/x-tandem-gate"
_HEADERS = {"Content-Type": _CONTENT_TYPE, "Accept": "application/json"}
_PATIENCE = 60.0
# The hook uses it for tips that git has collected since the gate was installed.
_IGNORE_MISSING = "--ignore-missing"


def check_range(context: Context, revisions: list[str]) -> int:
    site = install.GateSite.of(Path.cwd())
    answer = answer_about(context, site, "check", range_log(site, revisions))
    refused = [row for row in answer["commits"] if not row["covered"]]
    if context.wants_json:
        context.screen.json(answer | {"refused": len(refused)})
    elif refused:
        context.screen.block(answer["message"])
    else:
        context.screen.say(passed(len(answer["commits"]), "approval", "approval"))
    return Exit.REFUSED if refused else Exit.DONE


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
    """Return for each plan `plan`, `object`, `approved`, and the `reviews` that approved exactly this content."""
    site = install.GateSite.of(root)
    empty = text_of(run_git(site.folder, "hash-object", "--stdin").output)
    versions = plan_versions(root, names, empty)
    rows: list[Json] = answer_about(context, site, "status", b"", versions)["plans"] if versions else []
    objects = [os.fsdecode(version.entries[0].object_id) if version.entries else None for version in versions]
    return [{"object": object_id, **row} for object_id, row in zip(objects, rows, strict=True)]


def _place_of(file: str) -> tuple[Path, str]:
    root = top_level(Path.cwd())
    path = Path(os.path.realpath(Path(file).parent)) / Path(file).name
    if root is None or not path.is_relative_to(root) or not path.is_file():
        raise BrokerError(Code.NOT_FOUND, f"{file} is not a file of this repository", "Name the plan's file.")
    return root, path.relative_to(root).as_posix()


def status_of(context: Context) -> int:
    site = install.GateSite.of(Path.cwd())
    state = install.state(site)
    policy = install.policy_of(site)
    result: dict[str, Any] = {
        "installed": state == "ok",
        "state": state,
        "mode": policy.mode.value,
        "hook": str(install.hook_file(site)),
        "problem": policy.problem,
        "commits": [],
        "overridden": [],
    }
    if context.target.is_elsewhere:
        result["asks"] = context.target.url
    message: str = ""
    if site.facts_file.exists():
        log = guarded_log(site, policy)
        try:
            if context.target.is_elsewhere:
                result["mode"] = strictest([policy.mode, mode_there(context)]).value
            answer: Json = answer_about(context, site, "status", log) if log else {"commits": [], "message": ""}
            commits: list[Json] = answer["commits"]
            message = answer["message"]
            _record(context, site, log)
        except UnreachableError as error:
            # The hook's own state is known in any case.
            _show_status(context, result | {"problem": error.message})
            return Exit.UNAVAILABLE
        result["overridden"] = [row for row in commits if row.get("because") == "override"]
        result["commits"] = [row for row in commits if not row["covered"]]
    _show_status(context, result)
    if result["commits"] and message and not context.wants_json:
        # The last line of a refusal is the command to run.
        context.screen.block(message.splitlines()[-1])
    return Exit.REFUSED if result["commits"] else Exit.DONE


def mode_there(context: Context) -> Mode:
    """Ask the broker on another machine for its mode; it has to serve this repository."""
    return Mode(answer_about(context, install.GateSite.of(Path.cwd()), "status", b"")["mode"])


def judged(context: Context, site: install.GateSite, commits: list[str]) -> list[Json]:
    """Return a row for each commit: is its content approved?"""
    log = commits_log(site, ["--no-walk=unsorted", *commits])
    return answer_about(context, site, "status", log)["commits"] if commits else []


def _show_status(context: Context, result: dict[str, Any]) -> None:
    if context.wants_json:
        context.screen.json(result)
        return
    sentence = {
        "ok": "The gate is in place",
        "absent": "There is no gate here; `tandem gate install` puts one in place",
        "damaged": "The gate is damaged, and git may not run it; `tandem gate install` repairs it",
    }[result["state"]]
    asked = f"; it asks the broker at {result['asks']}" if "asks" in result else ""
    context.screen.say(f"{sentence}. Mode {result['mode']}; hook {result['hook']}{asked}.")
    if result["problem"]:
        context.screen.say(visible_block(f"Problem: {result['problem']}"))
    for row in result["commits"]:
        context.screen.say(visible_block(f"without approval: {row['commit'][:12]} {row['subject']}"))
    for row in result["overridden"]:
        context.screen.say(visible_block(f"overridden: {row['commit'][:12]} {row['subject']}"))


def passed(number: int, one: str, several: str) -> str:
    match number:
        case 0:
            return "There is no commit in this range."
        case 1:
            return f"The commit has {one}."
        case _:
            return f"All {number} commits have {several}."


def range_log(site: install.GateSite, revisions: list[str]) -> bytes:
    """List the named commits; refuse a name that git does not know."""
    for revision in revisions:
        if revision.startswith("-"):
            raise BrokerError(Code.INVALID_ARGUMENT, f"{revision!r} is not a range of commits", "Give A..B.")
    return _log(site, [word for word in hook.LOG if word != _IGNORE_MISSING], revisions)


def commits_log(site: install.GateSite, revisions: list[str]) -> bytes:
    """Return the output that the hook sends."""
    return _log(site, hook.LOG, revisions)


def _log(site: install.GateSite, words: Sequence[str], revisions: list[str]) -> bytes:
    answer = run_git(site.folder, *words, *revisions, "--", environment=places())
    if not answer.is_good:
        raise BrokerError(Code.INVALID_ARGUMENT, f"git log: {answer.why}", "Give a range that git knows, as A..B.")
    return answer.output


def guarded_log(site: install.GateSite, policy: GatePolicy) -> bytes:
    """List the commits that the guarded branches gained since the gate was installed."""
    return commits_log(site, [*hook.guarded_globs(policy.branches), "--not", "--remotes", *install.known_tips(site)])


def answer_about(
    context: Context, site: install.GateSite, asker: str, log: bytes, plans: Sequence[PlanVersion] = ()
) -> Json:
    here, body = _body(context, site, asker, log, plans)
    try:
        connection = context.broker.connection
        status, _, answer = connection.exchange("POST", "/api/gate/check", body, _HEADERS, patience=_PATIENCE)
    except UnreachableError:
        if context.target.is_elsewhere:
            # A database here is not that broker's.
            raise
        return _from_file(context, here, body)
    content = json.loads(answer)
    if status != 200:  # noqa: PLR2004 - HTTP's OK
        error = content["error"]
        raise BrokerError(Code(error["code"]), error["message"], error["hint"])
    return content


def _record(context: Context, site: install.GateSite, log: bytes) -> None:
    """Report what landed without a broker, or around the hook. The broker records a commit once."""
    try:
        report_landed(install.hook_site(site))
        if log:
            _, body = _body(context, site, "status", log)
            context.broker.connection.exchange("POST", "/api/gate/landed", body, _HEADERS, patience=_PATIENCE)
    except (UnreachableError, OSError):
        # A later commit, or the next look, reports it.
        return


def _body(
    context: Context, site: install.GateSite, asker: str, log: bytes, plans: Sequence[PlanVersion] = ()
) -> tuple[hook.Site, bytes]:
    commit = root_commit(site.folder) or ""
    here = hook.Site(str(site.common), {"root": str(site.root or ""), "commit": commit}, [])
    head = (ELSEWHERE if context.target.is_elsewhere else b"") + here.head(asker)
    return here, head + b"".join(map(plan_line, plans)) + hook.clean_merges(log) + b"\n" + log


def _from_file(context: Context, here: hook.Site, body: bytes) -> Json:
    """Judge without a broker, from its database."""
    place = context.target.locations
    here.known |= {"database": str(place.database)}
    request = parse_request(body)
    project = locations.project_file(place.root) if place.root else None
    policy = read_policy(project, locations.user_file())
    try:
        answer = database_file.judged_from_file(here, request, policy, "No broker runs here; its database was read.")
    except (OSError, ValueError, database_file.DatabaseError) as error:
        raise UnreachableError(f"no broker runs here, and its database cannot be read ({error})") from error
    return answer.as_json(request.commits)
