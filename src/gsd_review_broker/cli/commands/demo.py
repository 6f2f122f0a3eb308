"""`tandem demo`."""

import argparse
import contextlib
import os
import sys
import textwrap
import webbrowser

from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.registering import Commands
from gsd_review_broker.cli.screen import Screen, Span, Style
from gsd_review_broker.client.connection import Json
from gsd_review_broker.domain.words import CLIENTS

_DETAILS = """\
Makes a scratch repository, starts a broker on a free port, and runs two scripted agents that negotiate a change over
real MCP in three rounds, with findings, a counter-patch and an approval. It does not touch your files or call a model,
and it removes everything afterwards."""
_PAUSE_SECONDS = 1.2
_INDENT = " " * 12
_NARROWEST = 20
_COLOURS = {"proposer": Style.CYAN, "reviewer": Style.MAGENTA}


def register(commands: Commands) -> None:
    demo = commands.add(
        "demo", run_demo, summary="watch a whole review in half a minute: no set-up, no API key", details=_DETAILS
    )
    demo.add_argument("--fast", action="store_true", help="without pauses, and without a browser")
    demo.add_argument("--no-web", action="store_true", help="do not open the browser")
    demo.add_argument("--json", action="store_true", help="print exactly one JSON document")


def run_demo(options: argparse.Namespace) -> int:
    from gsd_review_broker.cli.demo import built, play

    screen = Screen()
    lines_shown: list[Json] = []

    def tell(line: Json) -> None:
        lines_shown.append(line)
        if not options.json:
            _tell(screen, line)

    with contextlib.ExitStack() as stack:
        with screen.progress("the stage is built"):
            broker, folder = stack.enter_context(built())
        if not options.json:
            _open(screen, broker.connection.url, options)
        play(broker.connection, folder, tell, pause=0.0 if options.fast else _PAUSE_SECONDS)
        events = broker.connection.call("get_audit_log", {"limit": 500})["events"]
    if options.json:
        screen.json({"steps": lines_shown, "events": [event["event_type"] for event in events]})
        return Exit.DONE
    screen.say()
    screen.say(f"{len(events)} events are on record for this, each in the hash chain. Everything is cleaned up.")
    screen.say("The gate's answers were the real git hook's; `tandem gate install` puts it into your repository.")
    screen.say(
        f"Next, in your repository: `tandem up`, then `tandem install {CLIENTS[0]}` (or {', '.join(CLIENTS[1:])})."
    )
    return Exit.DONE


def _open(screen: Screen, url: str, options: argparse.Namespace) -> None:
    screen.say("Two scripted agents, a real broker, real git, real MCP. Watch it live at ", Span(f"{url}/", Style.BOLD))
    has_display = sys.platform in {"darwin", "win32"} or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
    if screen.is_terminal and has_display and not (options.fast or options.no_web):
        webbrowser.open(f"{url}/")


def _tell(screen: Screen, line: Json) -> None:
    if line["chapter"]:
        screen.say()
        screen.say(Span(line["chapter"], Style.BOLD))
    text = _wrapped(screen, line["text"])
    screen.say("  ", Span(f"{line['who']:<10}", _COLOURS.get(line["who"], Style.PLAIN)), text[0])
    for more in text[1:]:
        screen.say(_INDENT, more)
    for detail in line["details"]:
        for piece in _wrapped(screen, detail):
            screen.say(_INDENT, Span(piece, Style.DIM))
    screen.write("")


def _wrapped(screen: Screen, text: str) -> list[str]:
    """Wrapped at a terminal's edge; a pipe gets the whole line."""
    if not screen.is_terminal:
        return [text]
    width = max(_NARROWEST, screen.width - len(_INDENT))
    lead = text[: len(text) - len(text.lstrip())]
    return textwrap.wrap(text, width, subsequent_indent=lead, drop_whitespace=True, replace_whitespace=False) or [text]
