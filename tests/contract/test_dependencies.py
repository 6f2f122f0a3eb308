"""What the source imports is declared, and what is declared is locked: the set-up installs nothing else."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "gsd_review_broker"
# Other libraries import these, by names that our code passes to them: uvicorn, and SQLAlchemy for PostgreSQL.
USED_BY_NAME = {"httptools", "asyncpg", "greenlet", "opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"}


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def name_in(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match
    return normalized(match[0])


@cache
def declared() -> tuple[set[str], set[str]]:
    """Always installed, and with an extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = {name_in(one) for extra in project["optional-dependencies"].values() for one in extra}
    return {name_in(one) for one in project["dependencies"]}, optional


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


@cache
def foreign() -> set[str]:
    """The top-level packages of others that the source imports."""
    modules = (ROOT / "src" / PACKAGE).rglob("*.py")
    names = {name.partition(".")[0] for path in modules for name in imported(ast.parse(path.read_text("utf-8")))}
    return names - sys.stdlib_module_names - {PACKAGE}


def test_every_import_is_declared() -> None:
    distributions = packages_distributions()
    every = set().union(*declared())
    undeclared = {
        name for name in foreign() if every.isdisjoint(normalized(one) for one in distributions.get(name, ()))
    }
    assert undeclared == set()


def test_every_declared_dependency_is_imported_or_used_by_name() -> None:
    used = {normalized(one) for name in foreign() for one in packages_distributions().get(name, ())}
    assert set().union(*declared()) - used == USED_BY_NAME - used


def test_every_dependency_is_locked() -> None:
    locked = {name_in(line) for line in (ROOT / "requirements.lock").read_text().splitlines() if line[:1].isalnum()}
    assert declared()[0] - locked == set()
