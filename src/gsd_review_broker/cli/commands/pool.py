"""`tandem pool …`: the reviewers that the broker starts."""

import argparse
from pathlib import Path
from typing import Any, cast

from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.describe import counted, moment, short_id
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.project_files import changed_setting
from gsd_review_broker.cli.registering import Commands, broker_options
from gsd_review_broker.cli.screen import Part, Screen, Span, Style
from gsd_review_broker.client.connection import Json
from gsd_review_broker.domain.words import AGENTS, DEFAULT_AGENT, ReviewerState
from gsd_review_broker.git.discovery import find_root
from gsd_review_broker.settings import locations

_STATES: dict[str, Style] = {
    ReviewerState.ACTIVE: Style.GREEN,
    ReviewerState.DRAINING: Style.YELLOW,
    ReviewerState.TERMINATED: Style.DIM,
}
_TITLES = ("REVIEWER", "STATE", "MODEL", "REVIEW", "DONE", "APPROVED", "LAST HEARD OF", "DOING")


def register(commands: Commands) -> None:
    pool = commands.group("pool", summary="the reviewers that the broker starts")
    shared = [broker_options()]
    pool.add("list", run_list, summary="list reviewers, and show the state of the pool", parents=shared)
    spawn = pool.add("spawn", run_spawn, summary="start a reviewer now", parents=shared)
    spawn.add_argument("agent", nargs="?", choices=AGENTS, help="which agent (the configured one)")
    spawn.add_argument("--project", help="only for this project's reviews")
    drain = pool.add("drain", run_drain, summary="let a reviewer finish, then stop it", parents=shared)
    _add_reviewer(drain)
    kill = pool.add("kill", run_kill, summary="stop a reviewer at once", parents=shared)
    _add_reviewer(kill)
    pool.add("pause", run_pause, summary="stop starting reviewers", parents=shared)
    pool.add("resume", run_resume, summary="start reviewers again", parents=shared)
    scale = pool.add(
        "scale", run_scale, summary="set the largest number of reviewers, until the broker restarts", parents=shared
    )
    scale.add_argument("size", type=int, metavar="N", help="1 to 10")
    logs = pool.add("logs", run_logs, summary="what a reviewer printed", parents=shared)
    _add_reviewer(logs)
    logs.add_argument(
        "--characters", type=int, default=20_000, metavar="N", help="how many characters, from the end (20000)"
    )
    _add_switch(pool.add("enable", run_enable, summary="turn the pool on in the configuration"), with_agent=True)
    _add_switch(pool.add("disable", run_disable, summary="turn the pool off in the configuration"), with_agent=False)


def _add_reviewer(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("reviewer", metavar="REVIEWER", help="its id, or its name while it is running")


def _add_switch(parser: argparse.ArgumentParser, *, with_agent: bool) -> None:
    if with_agent:
        parser.add_argument(
            "--agent", choices=AGENTS, help=f"the agent that reviews (the configured one, else {DEFAULT_AGENT})"
        )
    parser.add_argument("--scope", choices=["project", "user"], default="project", help="in which file (project)")
    parser.add_argument("--json", action="store_true", help="print exactly one JSON document")


def run_list(options: argparse.Namespace) -> int:
    context = Context(options)
    return _tell_state(context, context.get("/api/pool"))


def _tell_state(context: Context, state: Json) -> int:
    if context.wants_json:
        context.screen.json(state)
        return Exit.DONE
    if state["reviewers"]:
        context.screen.table(_TITLES, [_row(reviewer) for reviewer in state["reviewers"]])
    off = "off, for the reason below" if state["problem"] else "off: `tandem pool enable` turns it on"
    how = "paused" if state["paused"] else "on" if state["enabled"] else off
    context.screen.say(
        f"pool {how}; {state['agent']}, at most {state['max_pool_size']}; {state['pending']} pending; "
        f"{state['spawns_today']} of {state['max_spawns_per_day']} starts today"
    )
    for held in state.get("held_back", []):
        context.screen.say(Span(_held_back(held), Style.YELLOW))
    if state["problem"]:
        context.screen.say(Span(state["problem"], Style.RED))
    return Exit.DONE


def _held_back(held: Json) -> str:
    failures = counted(held["failures"], "failed reviewer")
    until = f"until {moment(held['retry_at'])}" if held["retry_at"] else "until a person answers"
    return f"{short_id(held['review_id'])} is held back after {failures}, {until}"


def _row(reviewer: Json) -> list[Part]:
    rate = reviewer["approval_rate_pct"]
    return [
        reviewer["id"],
        Span(reviewer["state"], _STATES.get(reviewer["state"], Style.PLAIN)),
        reviewer["model"] or "",
        short_id(reviewer["current_review"]),
        str(reviewer["reviews_completed"]),
        "" if rate is None else f"{rate:.0f} %",
        moment(reviewer["last_activity_at"] or ""),
        reviewer["doing"] or reviewer["end_reason"] or "",
    ]


def run_spawn(options: argparse.Namespace) -> int:
    context = Context(options)
    started = context.post("/api/pool/spawn", agent=options.agent, project=options.project)
    context.answer(started, started["reviewer_id"], f" started (pid {started['pid']})")
    return Exit.DONE


def run_drain(options: argparse.Namespace) -> int:
    return _end(options, "drain")


def run_kill(options: argparse.Namespace) -> int:
    return _end(options, "kill")


def _end(options: argparse.Namespace, how: str) -> int:
    context = Context(options)
    ended = context.post(f"/api/pool/reviewers/{_in_path(options.reviewer)}/{how}")
    context.answer(ended, ended["reviewer_id"], f" {ended['state']}")
    return Exit.DONE


def run_pause(options: argparse.Namespace) -> int:
    context = Context(options)
    return _tell_state(context, context.post("/api/pool/pause"))


def run_resume(options: argparse.Namespace) -> int:
    context = Context(options)
    return _tell_state(context, context.post("/api/pool/resume"))


def run_scale(options: argparse.Namespace) -> int:
    context = Context(options)
    return _tell_state(context, context.post("/api/pool/scale", max_pool_size=options.size))


def run_logs(options: argparse.Namespace) -> int:
    context = Context(options)
    log = context.get(f"/api/pool/reviewers/{_in_path(options.reviewer)}/log?characters={options.characters}")
    if context.wants_json:
        context.screen.json(log)
        return Exit.DONE
    if log["left_out"]:
        context.screen.warn("There is more before this: --characters N")
    context.screen.block(log["text"].removesuffix("\n"))
    return Exit.DONE


def _in_path(word: str) -> str:
    from urllib.parse import quote

    return quote(word, safe="")


def run_enable(options: argparse.Namespace) -> int:
    file = _file(options)
    if options.agent is not None:
        return _switch(options, file, {"enabled": True, "agent": options.agent})
    if (own := _agent_in(file)) is not None:
        return _switch(options, file, {"enabled": True, "agent": own})
    users = locations.user_file()
    if file != users and (shared := _agent_in(users)) is not None:
        # Not written here too: the user's file goes on deciding it.
        return _switch(options, file, {"enabled": True}, note=f", agent is {shared} by {users}")
    return _switch(options, file, {"enabled": True, "agent": DEFAULT_AGENT})


def run_disable(options: argparse.Namespace) -> int:
    return _switch(options, _file(options), {"enabled": False})


def _file(options: argparse.Namespace) -> Path:
    root = find_root(Path.cwd())
    if options.scope == "user" or root is None:
        return locations.user_file()
    # Refused before anything is written: a link could lead to any file of the user.
    locations.read_project_file(root)
    return locations.project_file(root)


def _agent_in(file: Path) -> Any:
    section = locations.read_settings_file(file, must_exist=False).get("reviewer_pool")
    return cast("Json", section).get("agent") if isinstance(section, dict) else None


def _switch(options: argparse.Namespace, file: Path, values: Json, *, note: str = "") -> int:
    changed = changed_setting(file, "reviewer_pool", values, personal=True)
    screen = Screen()
    if options.json:
        screen.json({"file": str(file), "reviewer_pool": values, "changed": changed})
        return Exit.DONE
    agent = f", agent is {values['agent']}" if "agent" in values else note
    before = "" if changed else " already"
    screen.say(f"{file}: reviewer_pool.enabled is{before} {'true' if values['enabled'] else 'false'}{agent}")
    if values["enabled"]:
        _warn_of_problems(screen)
    if changed:
        screen.say("A running broker uses it after a restart: tandem down; tandem up")
    return Exit.DONE


def _warn_of_problems(screen: Screen) -> None:
    """Print what would keep the pool off at the next start."""
    from gsd_review_broker.errors import StartError
    from gsd_review_broker.settings import config

    try:
        problems = config.load(root=find_root(Path.cwd()), flags={}).problems
    except StartError as error:
        screen.warn(f"problem: {error}")
        return
    for problem in problems:
        if problem.feature == "reviewer_pool":
            screen.warn(f"problem: {problem.message}. {problem.fix}")
