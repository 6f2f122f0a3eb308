"""What `tandem doctor` says about the pool: is it on, is its agent logged in, does its environment reach it?"""

import os
from collections.abc import Iterator

from gsd_review_broker.cli.doctor.asking import connected
from gsd_review_broker.cli.doctor.check import Check, green, yellow
from gsd_review_broker.client import Target, UnreachableError
from gsd_review_broker.client.connection import Json
from gsd_review_broker.errors import BrokerError

_RESTART = "Restart the broker from here: `tandem down; tandem up`."


def pool(target: Target) -> Iterator[Check]:
    """As the running broker sees it: what counts is the environment in which it was started."""
    try:
        running = connected(target)
        state = running.connection.get("/api/pool")
        problems = running.connection.get("/api/problems")["problems"]
        running.connection.close()
    except (UnreachableError, BrokerError):
        return
    for problem in problems:
        if problem["feature"] == "settings":
            yield yellow("settings", problem["message"], problem["fix"])
    if not state["enabled"]:
        return
    if state["problem"]:
        yield yellow("pool", state["problem"], "`tandem pool list` and `tandem pool logs` show more.")
    else:
        yield green("pool", f"on, starts {state['agent']}")
    # A broker of an older version says nothing about it.
    if login := state.get("login"):
        yield from _login(state["agent"], login)


def _login(agent: str, login: Json) -> Iterator[Check]:
    if login["known"] and not login["seen"]:
        yield yellow("pool login", f"nothing shows that {agent} is logged in where the broker runs", login["advice"])
    elif login["seen"]:
        yield green("pool login", f"{agent} by {login['seen']}")
    absent = [name for name in login["passed"] if os.environ.get(name) and name not in login["present"]]
    if absent:
        yield yellow(
            "pool environment",
            f"{', '.join(absent)}: set here, but the broker was started without, so reviewers do not get it",
            _RESTART,
        )
