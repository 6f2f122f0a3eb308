"""`tandem mcp`: the broker's tools over standard input and output."""

import argparse
import contextlib
import sys
import threading
import time
from pathlib import Path

from gsd_review_broker.cli.broker import background
from gsd_review_broker.cli.broker.bridge import Bridge, FirstAnswers
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.registering import Commands, add_place_options
from gsd_review_broker.client import Target, connect, find
from gsd_review_broker.domain.words import ROLES_WITH_TOOLS, values
from gsd_review_broker.errors import BrokerError, StartError
from gsd_review_broker.settings.locations import own_token

_DETAILS = """\
For clients that only support stdio. The client starts this program, which forwards each message to the running broker
and each answer back. It starts the broker if necessary, and continues after a restart of the broker."""


def register(commands: Commands) -> None:
    mcp = commands.add(
        "mcp", run_bridge, summary="the broker's MCP tools over standard input and output", details=_DETAILS
    )
    mcp.add_argument("--role", choices=values(ROLES_WITH_TOOLS), help="only the tools of this role")
    mcp.add_argument("--no-start", action="store_true", help="do not start a broker")
    mcp.add_argument(
        "--patience", type=float, metavar="SECONDS", help="how long to wait for a stopped broker to come back (20)"
    )
    mcp.add_argument("--url", help="the broker's address (else BROKER_URL, else the broker of this folder)")
    add_place_options(mcp)


class _Address:
    """The broker's present address, checked to be still ours: another program may have its port by now.

    One thread looks; the others wait for its result.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._looking = threading.Lock()
        self._running_since = time.time()
        self._target = Target.of(Path.cwd(), url=options.url, db=options.db, config=options.config, user=options.user)

    def __call__(self) -> str:
        with self._looking:
            if self._target.url or self._options.no_start:
                broker = connect(self._target, token=own_token())
            else:
                broker = background.start(
                    self._target,
                    flags=background.flags_of(self._options),
                    config=self._options.config,
                    running_since=self._running_since,
                ).broker
            broker.connection.close()
            return broker.connection.url

    @property
    def may_start(self) -> bool:
        return not (self._target.url or self._options.no_start)

    def is_running(self) -> bool:
        broker = find(self._target)
        if broker is not None:
            broker.connection.close()
        return broker is not None


def run_bridge(options: argparse.Namespace) -> int:
    address = _Address(options)
    endpoint = f"/mcp/{options.role}" if options.role else "/mcp"
    bridge = Bridge(
        address=address,
        endpoint=endpoint,
        out=sys.stdout.buffer,
        token=own_token(),
        first_answers=_first_answers(address, endpoint) if address.may_start else None,
        **({} if options.patience is None else {"patience": options.patience}),
    )
    bridge.run(sys.stdin.buffer)
    return Exit.DONE


def _first_answers(address: _Address, endpoint: str) -> FirstAnswers:
    def start() -> None:
        # What goes wrong is the answer to the first call, which looks for the broker too.
        with contextlib.suppress(BrokerError, StartError, OSError):
            address()
            first_answers.has_come_up()

    first_answers = FirstAnswers(
        endpoint, is_running=address.is_running, start=threading.Thread(target=start, daemon=True).start
    )
    return first_answers
