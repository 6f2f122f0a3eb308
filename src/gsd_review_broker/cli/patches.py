"""A diff as text: where the user gives it from, fetched from a review, and shown with colours and a pager."""

import argparse
import os
import re
import select
import shlex
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from gsd_review_broker.cli import changes
from gsd_review_broker.cli.changes import LocalDiff
from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.screen import Screen, Span, Style
from gsd_review_broker.client.connection import Json
from gsd_review_broker.errors import BrokerError, Code

_STYLES = {"+": Style.GREEN, "-": Style.RED, "@": Style.CYAN}
_HEADING = re.compile(r"(@@ -[\d,]+ \+[\d,]+ @@)( .+)")
_HEADERS = (
    "diff ",
    "index ",
    "--- ",
    "+++ ",
    "rename ",
    "similarity ",
    "new file",
    "deleted file",
    "old mode",
    "new mode",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetched:
    """The proposal, and all of the requested text; None if there is none."""

    proposal: Json
    text: str | None


def fetch(
    context: Context,
    review_id: str,
    *,
    revision: int | None = None,
    since: int | None = None,
    path: str | None = None,
    counter: bool = False,
) -> Fetched:
    """Fetch every page of one revision: a cursor stays with the revision it began with."""
    filters = {"review_id": review_id, "revision": revision, "since_revision": since, "path": path}
    proposal = context.call("get_proposal", **filters)
    text: str | None = proposal["counter_patch" if counter else "diff"]
    cursor: str | None = proposal["counter_patch_next_cursor" if counter else "next_cursor"]
    pages = [] if text is None else [text]
    while cursor is not None:
        page = context.call("get_proposal", **filters, cursor=cursor)
        pages.append(page["diff"])
        cursor = page["next_cursor"]
    return Fetched(proposal=proposal, text=None if text is None else "".join(pages))


def show(screen: Screen, text: str, *, pager: bool) -> None:
    lines = [painted(screen, line) for line in text.removesuffix("\n").split("\n")]
    whole = "\n".join(lines) + "\n"
    program = _pager() if pager and screen.is_terminal and len(lines) >= shutil.get_terminal_size().lines else None
    if program is None:
        sys.stdout.write(whole)
        return
    environment = {"LESS": "FRX", **os.environ}
    with subprocess.Popen(program, stdin=subprocess.PIPE, env=environment) as shown:
        try:
            shown.communicate(whole.encode())
        except BrokenPipeError:
            return


def painted(screen: Screen, line: str) -> str:
    """Colour a line of a diff; tabs stay. The text after a hunk's numbers is marked as the author's."""
    heading = _HEADING.fullmatch(line)
    if heading is not None:
        line = f"{heading[1]} (heading by the author:{heading[2]})"
    style = Style.BOLD if line.startswith(_HEADERS) else _STYLES.get(line[:1], Style.PLAIN)
    return screen.painted(Span(line, style), is_block=True)


def _pager() -> list[str] | None:
    chosen = os.environ.get("GIT_PAGER") or os.environ.get("PAGER") or "less"
    try:
        program = shlex.split(chosen)
    except ValueError:
        return None
    return program if program and program[0] != "cat" and shutil.which(program[0]) else None


# An unnamed pipe that stays silent for so long is taken for empty.
_SILENCE_SECONDS = 2.0

# What git apply takes for the beginning of a file's patch, complete or not: the broker reports what is wrong with it.
_BEGINNING = re.compile(rb"^(diff --git |--- .*\n\+\+\+ |@@ -)", re.MULTILINE)


def add_source_options(parser: argparse.ArgumentParser, *, may_be_none: bool) -> None:
    group = parser.add_argument_group("the diff (else standard input, what is staged, or the work tree)")
    source = group.add_mutually_exclusive_group()
    source.add_argument("--staged", action="store_true", help="what is staged")
    source.add_argument(
        "--worktree", action="store_true", help="the whole work tree: with untracked files, without ignored ones"
    )
    source.add_argument(
        "--path",
        action="append",
        metavar="FILE",
        help="this file alone, as it is in the work tree, even if git ignores it; can be given again",
    )
    source.add_argument("--range", metavar="A..B", help="commits; A...B: since their common ancestor")
    source.add_argument("-F", "--file", metavar="FILE", help="a file with a unified diff; - is standard input")
    if may_be_none:
        source.add_argument("--no-diff", action="store_true", help="no diff, only text")


def chosen_change(options: argparse.Namespace) -> LocalDiff | None:
    """Return the change that the options name; None for --no-diff. Refuse text that is not a diff."""
    if getattr(options, "no_diff", False):
        return None
    change, place = _read(options)
    if not change.diff.strip():
        raise BrokerError(
            Code.INVALID_ARGUMENT,
            f"there is no change in {place}",
            "Change something first, or choose another source: --staged, --worktree, --path, --range, -F FILE.",
        )
    if not _BEGINNING.search(change.diff):
        raise BrokerError(
            Code.INVALID_ARGUMENT,
            f"{place} does not contain a diff",
            "Give what `git diff` prints, without colours, or choose --staged or --worktree; words are for -m and "
            "--description.",
        )
    return change


def as_text(diff: bytes, place: str = "the diff") -> str:
    try:
        return diff.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BrokerError(
            Code.INVALID_ARGUMENT,
            f"{place} is not UTF-8 (byte {error.start})",
            "Use --staged, --worktree or --range, which send such files as git binary patches.",
        ) from error


def _read(options: argparse.Namespace) -> tuple[LocalDiff, str]:
    if options.file == "-":
        return LocalDiff(diff=sys.stdin.buffer.read()), "standard input"
    if options.file:
        return LocalDiff(diff=_file(options.file)), options.file
    if not (options.staged or options.worktree or options.range or options.path):
        piped = _piped()
        if piped.strip():
            return LocalDiff(diff=piped), "standard input"
    with changes.opened(Path.cwd()) as tree:
        if options.path:
            return changes.files(tree, options.path), ", ".join(options.path)
        if options.range:
            return changes.span(tree, options.range), options.range
        if options.staged:
            return changes.staged(tree), "the index"
        if options.worktree:
            return changes.worktree(tree), "the work tree"
        diff = changes.staged(tree)
        return (diff, "the index") if diff.diff else (changes.worktree(tree), "the index or the work tree")


def _file(name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise BrokerError(
            Code.INVALID_ARGUMENT, f"{name}: {error.strerror}", "Give a file that can be read."
        ) from error


def _piped() -> bytes:
    """Read piped input. An agent's shell may leave a pipe open that never sends anything."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):
        return b""
    if stat.S_ISREG(mode):
        return sys.stdin.buffer.read()
    if not stat.S_ISFIFO(mode) or sys.platform == "win32":
        return b""
    ready, _, _ = select.select([sys.stdin], [], [], _SILENCE_SECONDS)
    return sys.stdin.buffer.read() if ready else b""
