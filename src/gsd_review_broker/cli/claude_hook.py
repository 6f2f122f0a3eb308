"""The gate's early layer in Claude Code: it denies `git commit` before it runs, and looks again when the agent stops.

It finds `git commit` in a command's text and asks the gate about the index. The git hook decides.
Claude Code goes on if such a hook fails, so a failure here is a denial."""

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gsd_review_broker.cli import changes
from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.gate_questions import guarded_log
from gsd_review_broker.domain.gate.policy import GatePolicy, Mode
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.gate import hook, install
from gsd_review_broker.git.discovery import git_folder
from gsd_review_broker.git.program import text_of

# `git`, perhaps with options of its own, and then `commit`: not `git log commit`, and not `git commit-tree`.
_COMMIT = re.compile(r"\bgit(?:\s+-[^;&|\n]*?)?\s+commit(?![\w-])")
_EARLY = "This is an early warning by tandem's hook in Claude Code. The git hook decides, whatever command commits."
_NO_HOOK = "The git hook decides, and it is not in place here: run `tandem gate install`."
_LONGEST = 8 * 1024 * 1024
_AUTHOR = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "tandem"), ("EMAIL", "tandem@localhost"))
}

# The outcome, as the git hook has it, and the words.
HookAnswer = tuple[str, str]


def answer(context: Context) -> int:
    """Read the event from standard input, and print the answer for Claude Code."""
    ask, refusal = _EVENTS[context.options.event]
    try:
        outcome, text = ask(json.loads(sys.stdin.buffer.read(_LONGEST)))
    except BrokerError as error:
        outcome, text = "refuse", f"tandem gate: refused, because {error.message}. {error.hint}\n{_EARLY}"
    except Exception as error:  # noqa: BLE001 - Claude Code would go on
        outcome, text = "refuse", f"tandem gate: refused, because its hook failed: {error!r}\nRun `tandem doctor`."
    if outcome == "refuse":
        print(json.dumps(refusal(text)))
    elif text:
        print(json.dumps({"systemMessage": text}))
    return Exit.DONE


def _before(facts: dict[str, Any]) -> HookAnswer:
    """Ask about the present index of the folder that Claude is in."""
    if facts.get("tool_name") != "Bash" or not (commit := _COMMIT.search(facts["tool_input"]["command"])):
        return "pass", ""
    site = _site(Path(facts["cwd"]))
    policy = install.policy_of(site) if site else None
    if site is None or policy is None or policy.mode is Mode.OFF:
        return "pass", ""
    amends = "--amend" in commit.string[commit.end() :]
    body = _question(site, policy, amends=amends)
    outcome, text = hook.ask(install.hook_site(site), "/api/gate/check", body) if body else ("pass", "")
    said = f"{text}\n{_who_decides(site)}" if text else ""
    return outcome if outcome in {"pass", "warn"} else "refuse", said


def _stopping(facts: dict[str, Any]) -> HookAnswer:
    """Look for commits that got around the git hook, once: the agent may stop the second time."""
    if facts.get("stop_hook_active"):
        return "pass", ""
    site = _site(Path(facts["cwd"]))
    if site is None or not site.facts_file.exists():
        return "pass", ""
    policy = install.policy_of(site)
    log = guarded_log(site, policy) if policy.mode is not Mode.OFF else b""
    if not log:
        return "pass", ""
    here = install.hook_site(site)
    merges = hook.clean_merges(log, {"GIT_DIR": str(site.common)})
    _, text = hook.ask(here, "/api/gate/check", here.head("status") + merges + b"\n" + log)
    if not text:
        return "pass", ""
    return "refuse" if policy.mode is Mode.BLOCK else "warn", f"{text}\n{_who_decides(site)}"


def _question(site: install.GateSite, policy: GatePolicy, *, amends: bool) -> bytes | None:
    """About the commit that git would make of the index, made in a scratch folder. None where no guarded branch would
    gain anything."""
    with changes.opened(site.folder) as tree:
        branch = tree.git("symbolic-ref", "--quiet", "HEAD")
        name = text_of(branch.output)
        if branch.code != 0 or not policy.guards(name.removeprefix("refs/heads/")):
            return None
        changes.copy_index(tree)
        commit = _scratch_commit(tree, amends=amends)
        tips = install.known_tips(site) if site.facts_file.exists() else []
        known = ["--not", *hook.guarded_globs(policy.branches), "--remotes", *tips, "--"]
        answer = tree.git(*hook.LOG, commit, *known)
        if not answer.is_good:
            raise BrokerError(Code.UNAVAILABLE, f"git log: {answer.why}", "Look at the repository.")
        log = answer.output
        here = install.hook_site(site)
        plans = hook.plan_lines(here, hook.configuration(here), [(commit, name)])
        head = here.head("hook") + f"branch={name}\n".encode("utf-8", "surrogateescape") + plans
        merges = hook.clean_merges(log, tree.environment | {"GIT_DIR": tree.must("rev-parse", "--absolute-git-dir")})
        return head + merges + b"\n" + log if log else None


def _scratch_commit(tree: changes.Tree, *, amends: bool) -> str:
    head = tree.git("rev-parse", "HEAD^@") if amends else tree.git("rev-parse", "--verify", "--quiet", "HEAD")
    parents = text_of(head.output).split() if head.code == 0 else []
    merged = Path(tree.must("rev-parse", "--path-format=absolute", "--git-path", "MERGE_HEAD"))
    if merged.exists() and not amends:
        parents += os.fsdecode(merged.read_bytes()).split()
    named = [word for parent in parents for word in ("-p", parent)]
    subject = "the commit that you are about to make"
    made = tree.git("commit-tree", *named, "-m", subject, changes.written(tree), more=_AUTHOR)
    if made.code != 0:
        raise BrokerError(Code.UNAVAILABLE, f"git commit-tree: {made.why}", "Look at the repository.")
    return text_of(made.output)


def _site(folder: Path) -> install.GateSite | None:
    return install.GateSite.of(folder) if folder.is_dir() and git_folder(folder) else None


def _who_decides(site: install.GateSite) -> str:
    return _EARLY if install.state(site) == "ok" else _NO_HOOK


def _denied(text: str) -> dict[str, Any]:
    decision = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": text}
    return {"hookSpecificOutput": decision}


def _blocked(text: str) -> dict[str, Any]:
    return {"decision": "block", "reason": text}


_EVENTS: dict[str, tuple[Callable[[dict[str, Any]], HookAnswer], Callable[[str], dict[str, Any]]]] = {
    "pre-tool-use": (_before, _denied),
    "stop": (_stopping, _blocked),
}
