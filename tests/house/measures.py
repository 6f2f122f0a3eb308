"""Measure the size of the house by reading its source: how much there is to learn before one can change it."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PACKAGE = "gsd_review_broker"
SOURCE = Path(__file__).resolve().parents[2] / "src"
# A module of these rooms is found by its name: it may have a single importer, or none.
PLUG_INS = (
    "cli.commands.",
    "integrations.clients.",
    "pool.agents.",
    "store.migrations.",
    "web.pages.",
)


@dataclass(frozen=True, slots=True)
class Import:
    """One name that one module imports from another module of the package."""

    importer: str
    module: str
    name: str


class House:
    def __init__(self, source: Path = SOURCE) -> None:
        folder = source / PACKAGE
        self.texts = {_name(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*.py"))}

    @cached_property
    def trees(self) -> dict[str, ast.Module]:
        return {name: ast.parse(text) for name, text in self.texts.items()}

    @cached_property
    def imports(self) -> list[Import]:
        return [found for name, tree in self.trees.items() for found in self._imports_of(name, tree)]

    def _imports_of(self, importer: str, tree: ast.Module) -> Iterator[Import]:
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or node.level or not _is_ours(node.module):
                continue
            module = (node.module or "").removeprefix(PACKAGE).removeprefix(".")
            for alias in node.names:
                whole = f"{module}.{alias.name}".removeprefix(".")
                yield Import(importer, whole if whole in self.texts else module, alias.name)

    @property
    def lines(self) -> int:
        return sum(len(text.splitlines()) for text in self.texts.values())

    @cached_property
    def importers(self) -> dict[str, set[str]]:
        importers: dict[str, set[str]] = {name: set() for name in self.texts}
        for found in self.imports:
            importers[found.module].add(found.importer)
        return importers

    def with_one_importer(self) -> list[str]:
        return [name for name, importers in self.importers.items() if len(importers) == 1]

    def corridors(self) -> list[str]:
        """Return the modules with one importer, in the same room, that are not plug-ins: they belong into it."""
        return [
            name
            for name in self.with_one_importer()
            if not name.startswith(PLUG_INS) and _room(name) == _room(next(iter(self.importers[name])))
        ]

    def classes_used_twice(self) -> dict[str, list[str]]:
        places: dict[str, list[str]] = defaultdict(list)
        for name, tree in self.trees.items():
            for node in tree.body:
                if isinstance(node, ast.ClassDef):
                    places[node.name.lstrip("_")].append(name)
        return {name: modules for name, modules in sorted(places.items()) if len(modules) > 1}

    def names_across_rooms(self) -> int:
        crossing = {
            (found.module, found.name) for found in self.imports if _room(found.module) != _room(found.importer)
        }
        return len(crossing)

    def names_imported(self) -> int:
        return len({(found.module, found.name) for found in self.imports})

    def longest(self, most: int = 400) -> dict[str, int]:
        sizes = {name: len(text.splitlines()) for name, text in self.texts.items()}
        return {name: size for name, size in sorted(sizes.items()) if size > most}


def _name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix("__init__").removesuffix(".")


def _is_ours(module: str | None) -> bool:
    return module is not None and (module == PACKAGE or module.startswith(PACKAGE + "."))


def _room(module: str) -> str:
    return module.split(".", 1)[0]
