"""The gate's early layer in Claude Code: it denies `git commit` before it runs, and looks again when the agent stops.

Claude Code goes on if such a hook fails, so whatever goes wrong here is a denial."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.gate.commits import commits_in
from gsd_review_broker.cli.gate.questions import guarded_log
from gsd_review_broker.cli.gate.would_be import question_about
from gsd_review_broker.domain.gate.policy import Mode
from gsd_review_broker.errors import BrokerError
from gsd_review_broker.gate import hook, install
from gsd_review_broker.git.discovery import git_folder

_COUNTS = "This is an early warning by tandem's hook in Claude Code. The git hook decides, whatever command commits."
_NO_HOOK = "The git hook decides, and it is not in place here: run `tandem gate install`."
_LONGEST = 8 * 1024 * 1024

# The outcome, as the git hook has it, and the words.
Answer = tuple[str, str]


def answer(event: str) -> int:
    """Reads the event from standard input, and prints Claude Code's answer."""
    try:
        facts = json.loads(sys.stdin.buffer.read(_LONGEST))
        outcome, text = _EVENTS[event][0](facts)
    except BrokerError as error:
        outcome, text = "refuse", f"tandem gate: refused, because {error.message}. {error.hint}\n{_COUNTS}"
    except Exception as error:  # noqa: BLE001 - Claude Code would go on
        outcome, text = "refuse", f"tandem gate: refused, because its hook failed: {error!r}\nRun `tandem doctor`."
    if outcome == "refuse":
        print(json.dumps(_EVENTS[event][1](text)))
    elif text:
        print(json.dumps({"systemMessage": text}))
    return Exit.DONE


def _before(facts: dict[str, Any]) -> Answer:
    if facts.get("tool_name") != "Bash":
        return "pass", ""
    warning = ""
    for wanted in commits_in(str(facts["tool_input"]["command"]), Path(facts["cwd"])):
        site = _site(wanted.folder or Path(facts["cwd"]))
        policy = install.policy_of(site) if site else None
        if site is None or policy is None or policy.mode is Mode.OFF:
            continue
        body = question_about(wanted, site, policy)
        outcome, text = hook.ask(install.hook_site(site), "/api/gate/check", body) if body else ("pass", "")
        text = f"{text}\n{_counting(site)}" if text else ""
        if outcome not in {"pass", "warn"}:
            return "refuse", text
        warning = warning or text
    return "warn" if warning else "pass", warning


def _stopping(facts: dict[str, Any]) -> Answer:
    """Commits that got around the git hook. It asks once: the agent may stop the second time."""
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
    return "refuse" if policy.mode is Mode.BLOCK else "warn", f"{text}\n{_counting(site)}"


def _site(folder: Path) -> install.GateSite | None:
    """A folder that does not exist yet, or is not in a repository, has no gate."""
    return install.GateSite.of(folder) if folder.is_dir() and git_folder(folder) else None


def _counting(site: install.GateSite) -> str:
    return _COUNTS if install.state(site) == "ok" else _NO_HOOK


def _denied(text: str) -> dict[str, Any]:
    decision = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": text}
    return {"hookSpecificOutput": decision}


def _blocked(text: str) -> dict[str, Any]:
    return {"decision": "block", "reason": text}


_EVENTS: dict[str, tuple[Callable[[dict[str, Any]], Answer], Callable[[str], dict[str, Any]]]] = {
    "pre-tool-use": (_before, _denied),
    "stop": (_stopping, _blocked),
}
