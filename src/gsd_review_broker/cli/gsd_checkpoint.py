"""`tandem gsd checkpoint`: may a phase of GSD go on? The gates of our capability ask it, and so may a script.

Also `tandem gsd check-commits`: of commits that landed before their verdict, which are approved, which wait, and which
have to be taken back.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from gsd_review_broker.cli import changes, patches
from gsd_review_broker.cli.broker.watching import exit_of
from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.gate_questions import answer_about, commits_log, judged, plans_as_they_are
from gsd_review_broker.cli.gsd_rules import Rules, rules_here
from gsd_review_broker.cli.screen import visible_block
from gsd_review_broker.client import UnreachableError
from gsd_review_broker.client.connection import Json
from gsd_review_broker.domain.gate.refusal import plan_command
from gsd_review_broker.domain.gate.request import parse_log
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.gate import install
from gsd_review_broker.gate.install import GateSite
from gsd_review_broker.gate.question import active_plans
from gsd_review_broker.git.discovery import find_root
from gsd_review_broker.git.program import run_git

TRAILER = "Tandem-Review"
_MOST_COMMITS = 200
_MESSAGES = f"--format=%H%x00%(trailers:key={TRAILER},valueonly,separator=%x20)%x00%b"
_REVERTED = re.compile(rb"^This reverts commit ([0-9a-f]{40,64})\b", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlyCommit:
    """One commit of the branch; most have no trailer."""

    id: str
    subject: str
    paths: frozenset[bytes]
    review_id: str | None
    undoes: frozenset[str]
    """The commits that it reverts."""


def to_take_back(commits: Sequence[EarlyCommit], refused: Collection[str]) -> list[str]:
    """Return the refused ones of `commits` (oldest first) and what was built on them in the same files, newest first.

    Reverted in this order each applies cleanly: of every file, all that came after the refused change goes first.
    """
    touched: set[bytes] = set()
    taken: list[str] = []
    for commit in commits:
        if commit.id in refused or commit.paths & touched:
            taken.insert(0, commit.id)
            touched |= commit.paths
    return taken


def without_reverted(commits: Sequence[EarlyCommit]) -> list[EarlyCommit]:
    """Leave out each commit that was reverted, and its revert."""
    undone = {name for commit in commits for name in commit.undoes}
    return [commit for commit in commits if commit.id not in undone and not commit.undoes]


def check_commits(context: Context) -> int:
    result = early_commits(context)
    _show(context, result)
    return Exit.REFUSED if result["refused"] else Exit.PENDING if result["pending"] else Exit.DONE


def early_commits(context: Context) -> Json:
    """`approved`, `pending` and `refused` commits, what to `take_back`, and the `command` for it."""
    site = GateSite.of(Path.cwd())
    commits = without_reverted(_branch_commits(site))
    early = [commit for commit in commits if commit.review_id]
    covered = {row["commit"] for row in judged(context, site, [commit.id for commit in early]) if row["covered"]}
    standing = {one.id: Exit.DONE if one.id in covered else _standing(context, one) for one in early}
    refused = [name for name, exit_code in standing.items() if exit_code is Exit.REFUSED]
    taken = to_take_back(commits, refused)
    by_id = {commit.id: commit for commit in commits}
    return {
        "approved": [_facts(commit) for commit in early if standing[commit.id] is Exit.DONE],
        "pending": [_facts(commit) for commit in early if standing[commit.id] is Exit.PENDING],
        "refused": [_facts(commit) for commit in early if standing[commit.id] is Exit.REFUSED],
        "built_on": [_facts(by_id[name]) for name in taken if name not in refused],
        "take_back": taken,
        "command": f"git revert --no-edit {' '.join(name[:_SHORT] for name in taken)}" if taken else None,
    }


def _branch_commits(site: GateSite) -> list[EarlyCommit]:
    """List the commits, oldest first, without merges: what a merge brought in is listed too."""
    span = ["--topo-order", f"--max-count={_MOST_COMMITS}", "HEAD"]
    messages = _messages(site, span)
    return [
        EarlyCommit(
            id=commit.id,
            subject=commit.subject,
            paths=frozenset(commit.steps),
            review_id=messages[commit.id][0],
            undoes=messages[commit.id][1],
        )
        for commit in parse_log(commits_log(site, span))
        if len(commit.parents) <= 1
    ]


def _messages(site: GateSite, span: Sequence[str]) -> dict[str, tuple[str | None, frozenset[str]]]:
    """Return for each commit the review in its trailer, and the commits that it reverts."""
    answer = run_git(site.folder, "log", "-z", _MESSAGES, *span, "--")
    if not answer.is_good:
        raise BrokerError(Code.INVALID_ARGUMENT, f"git log: {answer.why}", "Go into a repository with commits.")
    fields = answer.output.removesuffix(b"\0").split(b"\0")
    rows = zip(fields[::3], fields[1::3], fields[2::3], strict=True)
    return {
        name.decode(): (_last_word(trailer), frozenset(one.decode() for one in _REVERTED.findall(body)))
        for name, trailer, body in rows
    }


def _last_word(trailer: bytes) -> str | None:
    words = trailer.decode("utf-8", "replace").split()
    return words[-1] if words else None


def _standing(context: Context, commit: EarlyCommit) -> Exit:
    """DONE, PENDING or REFUSED. Since other commits are on top of it, the gate often cannot tell: the broker checked
    the diff against a HEAD that had moved on. The diff itself can be compared."""
    review = commit.review_id or ""
    try:
        status = context.ask("get_review_status", review_id=review)
        standing = exit_of(status)
        is_same = standing is not Exit.DONE or patches.fetch(context, review).text == _diff_of(commit)
    except BrokerError as error:
        if error.code in {Code.NOT_FOUND, Code.INVALID_ARGUMENT}:
            return Exit.REFUSED
        raise
    return standing if is_same and standing in {Exit.DONE, Exit.PENDING} else Exit.REFUSED


def _diff_of(commit: EarlyCommit) -> str:
    """Make the diff as `tandem propose` made it before the commit."""
    with changes.opened(Path.cwd()) as tree:
        has_parent = tree.git("rev-parse", "--verify", "--quiet", f"{commit.id}^").code == 0
        base = f"{commit.id}^^{{tree}}" if has_parent else tree.must("mktree")
        return changes.between(tree, base, f"{commit.id}^{{tree}}").decode("utf-8")


def _facts(commit: EarlyCommit) -> Json:
    return {"commit": commit.id, "subject": commit.subject, "review_id": commit.review_id}


def _show(context: Context, result: Json) -> None:
    if context.wants_json:
        context.screen.json(result)
        return
    for kind in ("approved", "pending", "refused"):
        for row in result[kind]:
            context.screen.say(visible_block(f"{kind:<9} {row['commit'][:_SHORT]} {row['review_id']} {row['subject']}"))
    for row in result["built_on"]:
        context.screen.say(visible_block(f"built on  {row['commit'][:_SHORT]} {row['subject']}"))
    if result["command"]:
        context.screen.say("Stop. Take these commits back:")
        context.screen.say(f"  {result['command']}")
        context.screen.say("To work on one of them again, without a commit: git cherry-pick --no-commit COMMIT")
    elif not result["approved"] and not result["pending"]:
        context.screen.say(f"No commit has the trailer {TRAILER}.")


_SHORT = 12
# What is wrong, a line each, and the command to run next.
Findings = tuple[list[str], str | None]


def check_point(context: Context) -> int:
    name: str = context.options.checkpoint
    rules = rules_here(Path.cwd(), config_file=context.options.config)
    if not rules.is_on or not rules.gates[name]:
        return _answered(context, name, ([], None), note="No approval is needed at this checkpoint.")
    try:
        findings = _CHECKS[name](context, rules)
    except UnreachableError as error:
        if rules.settings.review.fail_mode == "closed":
            raise
        return _answered(context, name, ([], None), note=f"Not checked, since fail_mode is open: {error.message}")
    return _answered(context, name, findings)


def _answered(context: Context, name: str, findings: Findings, note: str = "Nothing waits for an approval.") -> int:
    problems, command = findings
    result: Json = {"checkpoint": name, "passed": not problems, "problems": problems, "next": command}
    if context.wants_json:
        context.screen.json(result)
    elif problems:
        context.screen.say(f"tandem: checkpoint {name}: not approved.")
        for problem in problems:
            context.screen.say(visible_block(f"  {problem}"))
        context.screen.say(f"Next: {command}")
    else:
        context.screen.say(f"tandem: checkpoint {name}: passed. {note}")
    return Exit.REFUSED if problems else Exit.DONE


def _plans(context: Context, _rules: Rules) -> Findings:
    """Check the plans of the main tree, in which GSD's orchestrator works."""
    root = find_root(Path.cwd())
    rows = plans_as_they_are(context, root, active_plans(root)) if root else []
    names = [row["plan"] for row in rows if not row["approved"]]
    return [f"{name} is not approved as it is" for name in names], plan_command(names[0]) if names else None


def _commits(context: Context, rules: Rules, *, may_wait: bool) -> Findings:
    if rules.execution_mode == "optimistic":
        return _early(context, may_wait=may_wait)
    site = install.GateSite.of(Path.cwd())
    if not site.facts_file.exists():
        # Without the git gate nothing says since when commits need an approval.
        return [], None
    log = commits_log(site, ["HEAD", "--not", "--remotes", *install.known_tips(site)])
    rows: list[Json] = answer_about(context, site, "status", log)["commits"] if log else []
    refused = [row for row in rows if not row["covered"]]
    problems = [f"commit {row['commit'][:_SHORT]} has no approval: {row['subject']}" for row in refused]
    return problems, refused[0].get("next", "tandem gate status") if refused else None


def _early(context: Context, *, may_wait: bool) -> Findings:
    standing = early_commits(context)
    rows = [*standing["refused"], *(() if may_wait else standing["pending"])]
    problems = [f"commit {row['commit'][:_SHORT]}: review {row['review_id']}: {row['subject']}" for row in rows]
    command = standing["command"] or (f"tandem wait {rows[0]['review_id']}" if rows else None)
    return problems, command


_CHECKS: dict[str, Callable[[Context, Rules], Findings]] = {
    "plan": _plans,
    "execute": lambda context, rules: _commits(context, rules, may_wait=True),
    "verify": lambda context, rules: _commits(context, rules, may_wait=False),
}
