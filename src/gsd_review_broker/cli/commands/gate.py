"""`tandem gate`: the git hook that lets only approved content land, and what it says about commits."""

import argparse
from pathlib import Path

from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.registering import Commands, add_review, broker_options, identity_option, later
from gsd_review_broker.errors import BrokerError, Code

_MODES = ("off", "warn", "block")


def register(commands: Commands) -> None:
    group = commands.group("gate", summary="let only approved content land, and prove it", parents=[broker_options()])
    install = group.add("install", _install, summary="install the git hook, for all worktrees")
    install.add_argument("--mode", choices=_MODES, help="write this mode into the project's file (warn)")
    group.add("uninstall", _uninstall, summary="remove the hook and restore what was there before")
    group.add(
        "status",
        later("gate_questions", "status_of"),
        summary="show whether the hook is in place and all commits have an approval",
    )
    check = group.add(
        "check", _check, summary="check that each commit of a range has an approval",
        details="Exit code 0: all have. 5: some have not. 3: there is neither a broker nor anything else that knows.",
    )  # fmt: skip
    check.add_argument("range", nargs="*", metavar="A..B", help="commits, as git log takes them")
    check.add_argument(
        "--plan", metavar="FILE", help="instead: is this plan approved as it is, even if git ignores it?"
    )
    check.add_argument("--offline", action="store_true", help="decide from receipts in the notes alone")
    check.add_argument("--key", metavar="FILE", help="with --offline: the broker's public key")
    check.add_argument("--policy", metavar="FILE", help="with --offline: this policy instead of the default")
    receipt = group.add(
        "receipt",
        later("gate_questions", "show_receipt"),
        summary="print the signed receipt of an approval or an override",
    )
    add_review(receipt, is_optional=True)
    receipt.add_argument("--override", metavar="COMMIT", help="of the override that let this commit through")
    receipt.add_argument("--note", metavar="COMMIT", help="store it in git notes (refs/notes/tandem) of this commit")
    group.add("key", later("gate_questions", "show_key"), summary="print the public key that receipts are checked with")
    claude = group.add(
        "claude", later("claude_hook", "answer"),
        summary="answer a hook of Claude Code, which `tandem install claude --gate` puts in place",
        details="It reads the event as JSON from standard input.", parents=(),
    )  # fmt: skip
    claude.add_argument("event", choices=("pre-tool-use", "stop"), help="the event that Claude Code reports")
    override = group.add(
        "override", _override, summary="let commits through for some minutes, with a reason",
        parents=[broker_options(), identity_option()],
    )  # fmt: skip
    override.add_argument("--reason", "-m", required=True, metavar="TEXT", help="why; it is in the audit")
    override.add_argument("--minutes", type=int, default=15, metavar="N", help="for how long (15)")


def _install(options: argparse.Namespace) -> int:
    from gsd_review_broker.cli.gate_questions import mode_there
    from gsd_review_broker.cli.project_files import install_gate

    context = Context(options)
    target = context.target
    if target.url is not None and target.is_elsewhere:
        result = install_gate(
            Path.cwd(), database=target.locations.database, mode=options.mode, url=target.url, there=mode_there(context)
        )
        asked = f" It asks the broker at {target.url}, and so do the commands in this repository."
        if not target.url.startswith("https:"):
            asked += " Nothing hides your token on the way there: use https if the network is not your own."
    else:
        result, asked = install_gate(Path.cwd(), database=target.locations.database, mode=options.mode), ""
    verb = "is in place" if result["changed"] else "was in place already"
    context.answer(result, f"The gate {verb}: {result['hook']}, mode {result['mode']}.{asked}")
    return Exit.DONE


def _uninstall(options: argparse.Namespace) -> int:
    from gsd_review_broker.cli.project_files import uninstall_gate

    context = Context(options)
    changed = uninstall_gate(Path.cwd())
    context.answer({"installed": False, "changed": changed}, "The gate is gone." if changed else "There was no gate.")
    return Exit.DONE


def _check(options: argparse.Namespace) -> int:
    from gsd_review_broker.cli import gate_questions

    if bool(options.range) == bool(options.plan) or (options.plan and options.offline):
        raise BrokerError(Code.INVALID_ARGUMENT, "give a range of commits, or --plan FILE", "For example main..HEAD.")
    if options.plan:
        return gate_questions.check_plan(Context(options), options.plan)
    if options.offline:
        return gate_questions.check_offline(Context(options), options.range, key=options.key, policy=options.policy)
    return gate_questions.check_range(Context(options), options.range)


def _override(options: argparse.Namespace) -> int:
    from gsd_review_broker.gate import install
    from gsd_review_broker.git.discovery import root_commit

    context = Context(options)
    site = install.GateSite.of(Path.cwd())
    result = context.post(
        "/api/gate/override",
        folder=str(site.common),
        root=str(site.root) if site.root else None,
        commit=root_commit(site.folder),
        elsewhere=context.target.is_elsewhere or None,
        person=context.identity,
        reason=options.reason,
        minutes=options.minutes,
    )
    context.answer(result, f"Commits pass until {result['until']}, as {result['person']} decided.")
    return Exit.DONE
