"""`tandem gsd checkpoint`: may a phase of GSD go on? The gates of our capability ask it, and so may a script."""

from collections.abc import Callable
from pathlib import Path

from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.gate.questions import answer_about, commits_log, plans_as_they_are
from gsd_review_broker.cli.gsd.optimistic import early_commits
from gsd_review_broker.cli.gsd.rules import Rules, rules_here
from gsd_review_broker.cli.render.escapes import visible_block
from gsd_review_broker.client import UnreachableError
from gsd_review_broker.client.connection import Json
from gsd_review_broker.domain.gate.refusal import plan_command
from gsd_review_broker.gate import install
from gsd_review_broker.gate.question import active_plans
from gsd_review_broker.git.checkout import find_root

_SHORT = 12
# What is wrong, a line each, and the command to run next.
Findings = tuple[list[str], str | None]


def check_point(context: Context, name: str) -> int:
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
    """GSD's orchestrator works in the main tree, and its plans count."""
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
