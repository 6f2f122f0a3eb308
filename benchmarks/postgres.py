"""PostgreSQL beside SQLite: what it costs for each tool, whether it stays quick, and a whole database there and back.

The server is started for this, with PostgreSQL's own settings: what it acknowledges is on the disk.
"""

import argparse
import contextlib
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

from tests.support import postgres
from tests.support.processes import DATABASE, BrokerProcess, make_repository

from benchmarks.client import Connection
from benchmarks.generator import generate
from benchmarks.large import SMALL, asking, claiming, questions
from benchmarks.measuring import Samples, in_turns
from benchmarks.report import Figure, heading, line, ratio, write_json
from benchmarks.stage import proposal
from gsd_review_broker import maintenance
from gsd_review_broker.settings.state_files import Database

RESULTS = Path(__file__).parent.parent / "bench-results" / "postgres.json"
_GROWTH = 1.5
_PARTS = ("move", "growth", "tools")
_MIDDLE = 10_000
_WRITES = ("create_review", "claim_review", "add_message", "submit_verdict", "close_review")


class Stage:
    """Two sizes, each as a SQLite file and as a PostgreSQL database with the same content."""

    def __init__(self, folder: Path, server: postgres.OwnServer, stack: contextlib.ExitStack) -> None:
        self._folder, self._server, self._stack = folder, server, stack

    def database(self, name: str, reviews: int) -> Database:
        database = Database(make_repository(self._folder / name) / DATABASE)
        seconds = generate(database.path, reviews)
        print(f"{reviews:,} reviews in {seconds:.0f} s, {database.path.stat().st_size / 1e6:,.0f} MB", flush=True)
        return database

    def empty(self, name: str) -> Database:
        postgres.run(postgres.execute(self._server.url(), f"CREATE DATABASE {name}"))
        return Database(self._folder / "state" / name, self._server.url(name))

    def broker(self, name: str, url: str | None = None) -> Connection:
        return self._stack.enter_context(self.own_broker(name, url))

    @contextlib.contextmanager
    def own_broker(self, name: str, url: str | None = None) -> Generator[Connection]:
        home = self._folder / f"home-{name}-{'sqlite' if url is None else 'postgres'}"
        home.mkdir(exist_ok=True)
        folder = self._folder / name
        process = BrokerProcess(folder, home=home) if url is None else postgres.broker_on(url, folder, home)
        with process, Connection(process.port) as connection:
            yield connection


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.postgres", description=__doc__)
    parser.add_argument("--reviews", type=int, default=100_000, help="of the large one (100,000)")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--only", action="append", choices=_PARTS, help="this part; may be repeated")
    options = parser.parse_args()
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tandem-postgres-")))
        folder.chmod(0o755)
        (folder / "server").mkdir()
        server = stack.enter_context(postgres.OwnServer(folder / "server"))
        stage = Stage(folder, server, stack)
        figures = _measured(stage, options.only or _PARTS, options.reviews, options.rounds)
    write_json(RESULTS, figures, seconds=time.monotonic() - began)
    missed = sum(figure.passes is False for figure in figures)
    print(f"\n{missed} of {len(figures)} missed; {time.monotonic() - began:.0f} s; {RESULTS}")
    return 1 if missed else 0


def _measured(stage: Stage, parts: Sequence[str], reviews: int, rounds: int) -> list[Figure]:
    files = {"small": stage.database("small", SMALL), "large": stage.database("large", reviews)}
    moved = {name: stage.empty(name) for name in files}
    figures: list[Figure] = []
    print(heading())
    if "move" in parts:
        middle = stage.database("middle", _MIDDLE)
        figures += _shown(_there_and_back("middle", middle, stage.empty("middle")))
        figures += _shown(_there_and_back("large", files["large"], moved["large"]))
    for name in files if "move" not in parts else ("small",):
        maintenance.move(files[name], moved[name])
        maintenance.reopen(files[name])
    asked = {name: questions(files[name].path) for name in files}
    there = {name: stage.broker(name, moved[name].url) for name in moved}
    if "growth" in parts:
        figures += _shown(_growth(there, asked, rounds))
    if "tools" in parts:
        figures += _shown(_beside_sqlite(stage.broker("small"), there["small"], asked["small"], rounds))
    return figures


def _shown(figures: list[Figure]) -> list[Figure]:
    for figure in figures:
        print(line(figure), flush=True)
    return figures


def _there_and_back(name: str, file: Database, moved: Database) -> list[Figure]:
    """Each way copies, compares and verifies."""
    back = Database(file.path.with_name("back.sqlite3"))
    began = time.monotonic()
    maintenance.move(file, moved)
    there = time.monotonic()
    maintenance.move(moved, back)
    ended = time.monotonic()
    exports = {_export_digest(database) for database in (file, moved, back)}
    # Other parts go on with both.
    maintenance.reopen(file)
    maintenance.reopen(moved)
    return [
        Figure(name=f"{name}: SQLite to PostgreSQL, verified", value=there - began, unit="s"),
        Figure(name=f"{name}: PostgreSQL to SQLite, verified", value=ended - there, unit="s"),
        Figure(name="different exports", value=len(exports) - 1, bar=0, told="audit export, all bytes"),
    ]


def _export_digest(database: Database) -> str:
    digest = hashlib.sha256()
    for event in maintenance.export(database):
        digest.update(json.dumps(event).encode() + b"\n")
    return digest.hexdigest()


def _growth(there: dict[str, Connection], asked: dict[str, Any], rounds: int) -> list[Figure]:
    figures: list[Figure] = []
    for name in asked["small"]:
        actions = {size: asking(there[size], *asked[size][name]) for size in there}
        figures.append(_grown(name, in_turns(actions, rounds=rounds, block=10)))
    actions = {size: claiming(there[size]) for size in there}
    return [*figures, _grown("claim (and release)", in_turns(actions, rounds=rounds, block=3))]


def _grown(name: str, samples: dict[str, Samples]) -> Figure:
    small, large = samples["small"].p50, samples["large"].p50
    return ratio(f"growth on PostgreSQL: {name}", large, small, _GROWTH, f"at {SMALL:,} reviews")


def _beside_sqlite(here: Connection, there: Connection, asked: dict[str, Any], rounds: int) -> list[Figure]:
    figures: list[Figure] = []
    for name, question in asked.items():
        actions = {"sqlite": asking(here, *question), "postgres": asking(there, *question)}
        samples = in_turns(actions, rounds=rounds, block=10)
        figures.append(_compared(name, samples["postgres"], samples["sqlite"]))
    samples = {name: {tool: Samples() for tool in _WRITES} for name in ("sqlite", "postgres")}
    for number in range(rounds * 4):
        _cycle(here, samples["sqlite"], number)
        _cycle(there, samples["postgres"], number)
    return [*figures, *(_compared(tool, samples["postgres"][tool], samples["sqlite"][tool]) for tool in _WRITES)]


def _compared(name: str, postgresql: Samples, sqlite: Samples) -> Figure:
    return ratio(f"PostgreSQL ÷ SQLite: {name}", postgresql.p50, sqlite.p50, None, "SQLite")


def _cycle(connection: Connection, samples: dict[str, Samples], number: int) -> None:
    answers: list[Any] = []

    def call(tool: str, **arguments: Any) -> Callable[[], object]:
        return lambda: answers.append(connection.call(tool, **arguments))

    samples["create_review"].time(call("create_review", **proposal(number)))
    review_id = answers[-1]["review_id"]
    samples["claim_review"].time(call("claim_review", review_id=review_id, reviewer_id="benchmark"))
    generation = answers[-1]["claim_generation"]
    samples["add_message"].time(call("add_message", review_id=review_id, sender_role="reviewer", body="why?"))
    verdict = {"verdict": "approved", "claim_generation": generation}
    samples["submit_verdict"].time(call("submit_verdict", review_id=review_id, **verdict))
    samples["close_review"].time(call("close_review", review_id=review_id, proposer_id="proposer-1"))


if __name__ == "__main__":
    sys.exit(main())
