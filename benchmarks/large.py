"""Does it stay quick? Two brokers, one on 1,000 reviews and one on a million, get the same calls in turns."""

import argparse
import contextlib
import multiprocessing
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from tests.support.processes import DATABASE, BrokerProcess, make_repository

from benchmarks.client import Connection, tool_request
from benchmarks.generator import generate
from benchmarks.measuring import Samples, in_turns
from benchmarks.report import Figure, heading, line, ratio, write_json

RESULTS = Path(__file__).parent.parent / "bench-results" / "large.json"
SMALL = 1_000
_GROWTH = 1.3
_BESIDE = 2.0

Arguments = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large", description=__doc__)
    parser.add_argument("--reviews", type=int, default=1_000_000, help="of the large one (1,000,000)")
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tandem-large-")))
        small = stack.enter_context(_broker(folder / "small", SMALL))
        large = stack.enter_context(_broker(folder / "large", options.reviews))
        print(heading())
        figures = [*_growth(small, large, options.rounds), *_beside(large, options.rounds)]
    for figure in figures:
        print(line(figure), flush=True)
    write_json(RESULTS, figures, seconds=time.monotonic() - began)
    missed = sum(figure.passes is False for figure in figures)
    print(f"\n{missed} of {len(figures)} missed; {time.monotonic() - began:.0f} s; {RESULTS}")
    return 1 if missed else 0


@contextlib.contextmanager
def _broker(folder: Path, reviews: int) -> Generator[BrokerProcess]:
    (folder / "home").mkdir(parents=True)
    repository = make_repository(folder / "repository")
    database = repository / DATABASE
    seconds = generate(database, reviews)
    print(f"{reviews:,} reviews in {seconds:.0f} s, {database.stat().st_size / 1e6:,.0f} MB", flush=True)
    with BrokerProcess(repository, home=folder / "home") as broker:
        yield broker


def questions(database: Path) -> dict[str, tuple[str, Arguments]]:
    """For existing data: a discussed review, a project, a place in the middle of the audit."""
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    with contextlib.closing(connection):
        (argued,) = connection.execute("SELECT id FROM reviews WHERE round = 2 LIMIT 1").fetchone()
        (newest,) = connection.execute("SELECT sequence FROM audit_head").fetchone()
    return {
        "status": ("get_review_status", {"review_id": argued}),
        "status by prefix": ("get_review_status", {"review_id": argued[:8]}),
        "list": ("list_reviews", {}),
        "list, pending": ("list_reviews", {"status": "pending"}),
        "list, a project": ("list_reviews", {"project": "beta"}),
        "list, closed of a phase": ("list_reviews", {"status": "closed", "phase": "verify"}),
        "list, pending of a category": ("list_reviews", {"status": "pending", "category": "handoff", "limit": 10}),
        "feed": ("get_activity_feed", {}),
        "feed, claimed": ("get_activity_feed", {"status": "claimed", "limit": 25}),
        "feed, a project": ("get_activity_feed", {"project": "beta"}),
        "feed, a category": ("get_activity_feed", {"category": "handoff"}),
        "stats": ("get_review_stats", {}),
        "stats, a project": ("get_review_stats", {"project": "beta"}),
        "timeline": ("get_review_timeline", {"review_id": argued}),
        "audit page": ("get_audit_log", {"after": newest // 2}),
        "broker status": ("broker_status", {}),
    }


def _growth(small: BrokerProcess, large: BrokerProcess, rounds: int) -> list[Figure]:
    asked = {broker: questions(broker.database) for broker in (small, large)}
    figures: list[Figure] = []
    with Connection(small.port) as to_small, Connection(large.port) as to_large:
        for name in asked[small]:
            actions = {
                "small": asking(to_small, *asked[small][name]),
                "large": asking(to_large, *asked[large][name]),
            }
            samples = in_turns(actions, rounds=rounds, block=10)
            figures.append(_grown(name, samples["small"], samples["large"]))
        actions = {"small": claiming(to_small), "large": claiming(to_large)}
        samples = in_turns(actions, rounds=max(1, rounds // 8), block=2)
        figures.append(_grown("claim (and release)", samples["small"], samples["large"]))
    return figures


def _grown(name: str, small: Samples, large: Samples) -> Figure:
    return ratio(f"growth: {name}", large.p50, small.p50, _GROWTH, "at 1,000 reviews")


def asking(connection: Connection, tool: str, arguments: Arguments) -> Callable[[], object]:
    prepared = tool_request(connection.port, tool, arguments)
    return lambda: connection.exchange(prepared)


def claiming(connection: Connection) -> Callable[[], object]:
    def claim_and_release() -> None:
        claim = connection.call("claim_next", reviewer_id="benchmark")
        connection.call("release_claim", review_id=claim["review_id"], claim_generation=claim["claim_generation"])

    return claim_and_release


def _beside(broker: BrokerProcess, rounds: int) -> list[Figure]:
    """A status call while another client makes the longest calls without a pause."""
    asked = questions(broker.database)
    figures: list[Figure] = []
    with Connection(broker.port) as connection:
        status = asking(connection, *asked["status"])
        for name in ("feed", "stats", "audit page"):
            alone, beside = Samples(), Samples()
            for _ in range(rounds):
                for _ in range(10):
                    alone.time(status)
                with _busy(broker, *asked[name]):
                    for _ in range(20):
                        beside.time(status)
            figures.append(ratio(f"a status call beside {name}", beside.p50, alone.p50, _BESIDE, "alone"))
    return figures


@contextlib.contextmanager
def _busy(broker: BrokerProcess, tool: str, arguments: Arguments) -> Generator[None]:
    """Another process, so that the two clients do not wait for each other."""
    context = multiprocessing.get_context("fork")
    started = context.Event()
    process = context.Process(target=_ask_on, args=(broker.port, tool, arguments, started), daemon=True)
    process.start()
    started.wait(10)
    try:
        yield
    finally:
        process.terminate()
        process.join()


def _ask_on(port: int, tool: str, arguments: Arguments, started: Event) -> None:
    with Connection(port) as connection:
        question = asking(connection, tool, arguments)
        while True:
            question()
            started.set()


if __name__ == "__main__":
    sys.exit(main())
