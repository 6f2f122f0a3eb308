"""Measure, print the table, keep it as JSON. Exits with 1 if a bar was missed."""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.figures.commands import commands
from benchmarks.figures.cycles import cycles
from benchmarks.figures.gate import gate
from benchmarks.figures.reads import reads, reads_over_floor
from benchmarks.figures.schema import schema
from benchmarks.figures.starting import start
from benchmarks.figures.teams import teams
from benchmarks.figures.waits import slices, waiters, wake
from benchmarks.figures.writes import claim_with_diff, writes
from benchmarks.report import Figure, heading, line, write_json
from benchmarks.stage import Stage, set_up

RESULTS = Path(__file__).parent.parent / "bench-results" / "latest.json"
# In this order: the first ones need the database as it was set up, the last ones stop the broker.
THEMES: dict[str, Callable[[Stage], list[Figure]]] = {
    "reads": reads,
    "floor": reads_over_floor,
    "writes": writes,
    "claim_with_diff": claim_with_diff,
    "wake": wake,
    "slices": slices,
    "schema": schema,
    "commands": commands,
    "cycles": cycles,
    "waiters": waiters,
    "teams": teams,
    "gate": gate,
    "start": start,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=list(THEMES), help="this theme; may be repeated")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: noisier, and done in a minute")
    options = parser.parse_args()
    began = time.monotonic()
    figures: list[Figure] = []
    print(heading())
    with set_up(quick=options.quick) as stage:
        for name in options.only or THEMES:
            for figure in _measured(name, stage):
                figures.append(figure)
                print(line(figure), flush=True)
    seconds = time.monotonic() - began
    write_json(RESULTS, figures, seconds=seconds)
    missed = sum(figure.passes is False for figure in figures)
    print(f"\n{missed} of {len(figures)} missed; {seconds:.0f} s; {RESULTS}")
    return 1 if missed else 0


def _measured(name: str, stage: Stage) -> list[Figure]:
    """A theme that fails counts as a missed bar; the others are still measured."""
    try:
        return THEMES[name](stage)
    except Exception as error:  # noqa: BLE001 - told in the table
        return [Figure(name=f"{name}: could not be measured", value=1, bar=0, told=str(error).replace("\n", " "))]


if __name__ == "__main__":
    sys.exit(main())
