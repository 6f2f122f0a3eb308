"""Fetches a whole diff from the broker's pages, and shows it."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass

from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.render.screen import Screen, Span, Style
from gsd_review_broker.client.connection import Json

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
    """Every page of one revision: a cursor stays with the revision it began with."""
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
    """A line of a diff; the tabs of code stay. The text after a hunk's numbers is the author's."""
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
