"""Every page shows its tables whole, its links resolve, and the modules that it names exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "src" / "gsd_review_broker"
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "tests/README.md")),
        *(ROOT / "docs").rglob("*.md"),
    ]
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
# A path below the package, the tests or the repository: `domain/rules/`, `domain/audit.check`.
PATH = re.compile(r"`([a-z_]+/[a-z0-9_/]*(?:\.[a-z_]+)?)`")
FIRST_FOLDERS = {
    path.name
    for folder in (PACKAGE, ROOT / "tests")
    for path in folder.iterdir()
    if path.is_dir() and path.name.isidentifier() and path.name != "__pycache__"
} | {"tests", "docs", "benchmarks"}
# What git and the broker keep in a repository's git folder.
NOT_OURS = {"tandem/tickets"}


def prose(page: Path) -> list[str]:
    """Return the page's lines, without the content of code blocks."""
    lines: list[str] = []
    fenced = False
    for line in page.read_text("utf-8").splitlines():
        is_fence = line.lstrip().startswith("```")
        fenced ^= is_fence
        lines.append("" if fenced or is_fence else line)
    return lines


def tables(lines: list[str]) -> list[list[str]]:
    """Return each run of lines that begin with a bar."""
    found: list[list[str]] = []
    for before, line in zip(["", *lines], lines, strict=False):
        if line.startswith("|"):
            if not before.startswith("|"):
                found.append([])
            found[-1].append(line)
    return found


def cells(row: str) -> int:
    return len(re.split(r"(?<!\\)\|", row.strip().strip("|")))


def anchors(page: Path) -> set[str]:
    """Return the names that GitHub gives to the headings of a page."""
    headings = [line.lstrip("#").strip() for line in prose(page) if re.match(r"#{1,6} ", line)]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def cut_tables(lines: list[str]) -> list[str]:
    """Return the first row of each run of rows that a browser does not show as one table."""
    return [
        table[0]
        for table in tables(lines)
        if len(table) < 2
        or not re.fullmatch(r"[|:\- ]+", table[1])
        or any(cells(row) != cells(table[0]) for row in table[1:])
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_table_is_cut_or_shown_as_text(page: Path) -> None:
    assert cut_tables(prose(page)) == []


def test_a_blank_line_in_a_table_is_noticed() -> None:
    assert cut_tables(["| a | b |", "|---|---|", "| 1 | 2 |", "", "| 3 | 4 |"]) == ["| 3 | 4 |"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_and_its_anchor_resolve(page: Path) -> None:
    broken: list[str] = []
    for link in LINK.findall("\n".join(prose(page))):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def exists(path: str) -> bool:
    stem = path.rstrip("/")
    places = [PACKAGE / stem, ROOT / "tests" / stem, ROOT / stem]
    return any(
        place.exists() or place.with_suffix(".py").exists() or place.with_suffix("").is_dir() for place in places
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_module_and_folder_that_a_page_names_exists(page: Path) -> None:
    paths = {path for path in PATH.findall("\n".join(prose(page))) if path.split("/")[0] in FIRST_FOLDERS}
    assert sorted(path for path in paths - NOT_OURS if not exists(path)) == []


def test_the_table_of_rooms_has_every_package() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    rooms = re.findall(r"^\| `(\w+)/` \|", page, re.MULTILINE)
    assert sorted(rooms) == sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
