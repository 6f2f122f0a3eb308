"""`python -m tests.house` prints how large the house is; `--check` compares it with limits.json, `--keep` lowers them.

The values in limits.json may only fall: a change that makes the house smaller lowers them, so that it stays so.
"""

import argparse
import json
import sys
from pathlib import Path

from tests.house.measures import SOURCE, House

LIMITS = Path(__file__).with_name("limits.json")


def figures(house: House) -> dict[str, int]:
    return {
        "modules": len(house.texts),
        "lines": house.lines,
        "modules with one importer": len(house.with_one_importer()),
        "class names used twice": len(house.classes_used_twice()),
    }


def above(now: dict[str, int], limits: dict[str, int]) -> list[str]:
    return [f"{name}: {now[name]}, and at most {most} are allowed" for name, most in limits.items() if now[name] > most]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.house", description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if a figure is above its limit")
    parser.add_argument("--keep", action="store_true", help="lower the limits to the present figures")
    parser.add_argument("--journeys", action="store_true", help="also start a broker and follow two journeys")
    parser.add_argument("--source", type=Path, default=SOURCE, help="the folder that holds the package")
    options = parser.parse_args()
    house = House(options.source)
    now = figures(house)
    limits: dict[str, int] = json.loads(LIMITS.read_text())
    if options.check:
        return _checked(house, above(now, limits))
    if options.keep:
        LIMITS.write_text(json.dumps({name: min(most, now[name]) for name, most in limits.items()}, indent=2) + "\n")
    _print(house, now)
    if options.journeys:
        _print_journeys()
    return 0


def _checked(house: House, complaints: list[str]) -> int:
    for complaint in complaints:
        print(f"the house grew: {complaint}", file=sys.stderr)
    if complaints:
        print(f"with one importer: {', '.join(house.with_one_importer())}", file=sys.stderr)
        print(f"class names used twice: {house.classes_used_twice()}", file=sys.stderr)
    return 1 if complaints else 0


def _print(house: House, now: dict[str, int]) -> None:
    more = {
        "modules with one importer in their own room, plug-ins left out": len(house.corridors()),
        "names imported": house.names_imported(),
        "names imported across rooms": house.names_across_rooms(),
        "modules over 400 lines": len(house.longest()),
    }
    for name, figure in {**now, **more}.items():
        print(f"{figure:8,}  {name}")


def _print_journeys() -> None:
    from tests.house.journeys import modules_of_journeys

    for name, modules in modules_of_journeys().items():
        print(f"{len(modules):8,}  modules take part in {name}")


if __name__ == "__main__":
    sys.exit(main())
