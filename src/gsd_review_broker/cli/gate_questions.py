"""What `tandem gate` answers: from the broker, without one from its database file, or from receipts alone."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gsd_review_broker.cli.changes import top_level
from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.screen import visible_block
from gsd_review_broker.client import UnreachableError
from gsd_review_broker.client.connection import Json
from gsd_review_broker.domain.gate.decision import Because, RepositoryId
from gsd_review_broker.domain.gate.judge import judge
from gsd_review_broker.domain.gate.policy import GatePolicy, Mode, stricter, strictest
from gsd_review_broker.domain.gate.refusal import plan_command
from gsd_review_broker.domain.gate.request import Asker, GateRequest, PlanVersion, parse_log, parse_request, plan_line
from gsd_review_broker.domain.model import Milliseconds
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.gate import database_file, hook, install
from gsd_review_broker.gate.question import plan_versions
from gsd_review_broker.gate.receipts import NOTES, Proofs, noted_receipts, parse_public_key, read_proofs
from gsd_review_broker.gate.remote import ELSEWHERE
from gsd_review_broker.gate.reports import report_landed
from gsd_review_broker.git.command import places
from gsd_review_broker.git.discovery import root_commit
from gsd_review_broker.git.program import Answer, run_git, run_users_git, text_of
from gsd_review_broker.settings import locations
from gsd_review_broker.settings.gate import read_policy, read_policy_file

if TYPE_CHECKING:
    from gsd_review_broker.gate.receipts import PublicKey

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


# Approvals that prove themselves: `tandem gate receipt`, `key` and `check --offline`.


def show_receipt(context: Context) -> int:
    review, override, note = context.options.review, context.options.override, context.options.note
    if bool(review) == bool(override):
        raise BrokerError(Code.INVALID_ARGUMENT, "give either a review's ID or --override COMMIT", "See --help.")
    path, facts = _override_question(override) if override else (f"/api/gate/receipts/{review}", {})
    text = str(context.post(path, **facts)["receipt"])
    if note is not None:
        _attach(text, note)
    if context.wants_json:
        context.screen.json(json.loads(text))
    else:
        print(text)
    return Exit.DONE


def _override_question(revision: str) -> tuple[str, dict[str, str]]:
    site = install.GateSite.of(Path.cwd())
    answer = run_git(site.folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if answer.code != 0:
        raise BrokerError(Code.NOT_FOUND, f"{revision!r} is not a commit of this repository", "Name a commit.")
    return "/api/gate/receipts/override", {"folder": str(site.common), "commit": text_of(answer.output)}


def _attach(text: str, commit: str) -> None:
    """Append the receipt, once: a squashed commit has several."""
    present = _notes("show", commit)
    if text in present.output.decode("utf-8", "replace").splitlines():
        return
    done = _notes("append", "-m", text, commit)
    if done.code != 0:
        raise BrokerError(Code.INVALID_ARGUMENT, f"git notes: {done.why}", "Name a commit of this repository.")


def _notes(*arguments: str) -> Answer:
    return run_users_git(Path.cwd(), "notes", f"--ref={NOTES}", *arguments)


def show_key(context: Context) -> int:
    path = locations.public_key_file()
    try:
        text = path.read_text("ascii")
    except FileNotFoundError:
        raise BrokerError(
            Code.NOT_FOUND,
            f"there is no key yet ({path})",
            "Start the broker (`tandem up`); it makes one.",
        ) from None
    if context.wants_json:
        context.screen.json({"key_id": parse_public_key(text).id, "public_key": text})
    else:
        print(text, end="")
    return Exit.DONE


def check_offline(context: Context, revisions: list[str], *, key: str | None, policy: str | None) -> int:
    public_key = _public_key(key)
    rules = _policy(policy)
    site = install.GateSite.of(Path.cwd())
    log = range_log(site, revisions)
    clean = frozenset(line.decode().removeprefix("clean=") for line in hook.clean_merges(log).splitlines())
    commits = parse_log(log, clean)
    root = root_commit(site.folder, commits[-1].id if commits else "HEAD", environment=places())
    origin = RepositoryId(root=root, folder=str(site.common))
    request = GateRequest(origin=origin, asker=Asker.CHECK, root=None, branches=(), commits=commits)
    proofs = read_proofs(noted_receipts(site.folder), public_key, origin, commits, rules)
    notes = [f"Receipts that apply: {proofs.count}.", *(f"Not applied: {why}." for why in proofs.reasons)]
    answer = judge(proofs.kept, request, rules, Milliseconds(0), notes=notes)
    rows = [_row(row, proofs) for row in answer.as_json(commits)["commits"]]
    if context.wants_json:
        context.screen.json(
            {"commits": rows, "refused": len(answer.refusals), "message": answer.text, "reasons": proofs.reasons}
        )
    else:
        context.screen.block(answer.text or passed(len(commits), "a receipt", "receipts"))
        for row in rows:
            if "override" in row:
                context.screen.say(visible_block(_override_line(row)))
    return Exit.REFUSED if answer.refusals else Exit.DONE


def _row(row: dict[str, Any], proofs: Proofs) -> dict[str, Any]:
    if row.get("because") != Because.OVERRIDE:
        return row
    receipt = proofs.overrides[row["commit"]]
    return row | {"override": {"person": receipt.person, "reason": receipt.reason}}


def _override_line(row: dict[str, Any]) -> str:
    override = row["override"]
    return f"overridden by {override['person']}: {row['commit'][:12]} {row['subject']} ({override['reason']})"


def _public_key(file: str | None) -> "PublicKey":
    if file is None:
        raise BrokerError(Code.INVALID_ARGUMENT, "--offline needs --key FILE", "`tandem gate key > FILE` prints it.")
    try:
        return parse_public_key(Path(file).read_text("ascii"))
    except (OSError, ValueError) as error:
        raise BrokerError(
            Code.INVALID_ARGUMENT, f"the key {file} cannot be read: {error}", "`tandem gate key > FILE` prints it."
        ) from error


def _policy(file: str | None) -> GatePolicy:
    if file is None:
        return stricter({"mode": Mode.BLOCK})
    try:
        return read_policy_file(Path(file))
    except (OSError, ValueError) as error:
        raise BrokerError(
            Code.INVALID_ARGUMENT,
            f"the policy {file} cannot be read: {error}",
            "It is a JSON object; see docs/gate.md.",
        ) from error
