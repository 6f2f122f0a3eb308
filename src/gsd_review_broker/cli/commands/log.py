"""`tandem log`, `tandem watch` and `tandem wait`: the history of a review, and what happens to it next."""

import argparse
import contextlib
import json
import shutil
import time
from collections import deque
from collections.abc import Generator

from gsd_review_broker.cli import describe
from gsd_review_broker.cli.broker.watching import DEFAULT_SECONDS, exit_of, follow, wait_for_verdict
from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.describe import event_line, status_span
from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.registering import Commands, add_review, broker_options
from gsd_review_broker.cli.screen import Screen, Span, Style
from gsd_review_broker.client.connection import Json
from gsd_review_broker.domain.words import PROPOSERS_TURN, REVIEWERS_TURN, Status

_WATCH_DETAILS = """\
With an ID, prints the history of that review and follows it until it is closed. Without one, prints new events of all
reviews, and on a terminal a list of the open ones. With --json, prints one event on each line. Stops with Ctrl-C, or
after --for SECONDS."""
_WAIT_DETAILS = """\
Continues after a restart of the broker, and prints one line at the end. Exits with 0 if approved, 5 if changes were
requested or the review was withdrawn, 8 if it is still pending (or a counter-patch needs your answer)."""


def register(commands: Commands) -> None:
    log = commands.add("log", show_log, summary="show the history of a review", parents=[broker_options()])
    add_review(log)
    watch = commands.add(
        "watch",
        run_watch,
        summary="watch a review, or everything, live",
        details=_WATCH_DETAILS,
        parents=[broker_options()],
    )
    watch.add_argument("review", nargs="?", metavar="ID", help="the review's id, or at least its first 6 characters")
    watch.add_argument("--for", dest="seconds", type=float, metavar="SECONDS", help="only so long")
    watch.add_argument("--after", type=int, metavar="EVENT", help="begin after this event's id")
    wait = commands.add(
        "wait",
        run_wait,
        summary="wait for a verdict, and report it as the exit code",
        details=_WAIT_DETAILS,
        parents=[broker_options()],
    )
    add_review(wait)
    wait.add_argument(
        "--timeout", type=float, default=DEFAULT_SECONDS, metavar="SECONDS", help="how long at most (600)"
    )
    wait.add_argument("-v", "--verbose", action="store_true", help="print a line for each change")


def show_log(options: argparse.Namespace) -> int:
    context = Context(options)
    story = context.call("get_review_timeline", review_id=options.review)
    if context.wants_json:
        context.screen.json(story)
        return Exit.DONE
    screen = context.screen
    screen.say(Span(story["review_id"], Style.BOLD), "  ", status_span(story["current_status"]))
    screen.say(story["intent"])
    for event in story["events"]:
        screen.say(*event_line(event, with_review=False))
    if story["next_cursor"] is not None:
        screen.warn(f"There is more: tandem audit log {story['review_id']} --after {story['next_cursor']}")
    return Exit.DONE


def run_watch(options: argparse.Namespace) -> int:
    context = Context(options)
    until = None if options.seconds is None else time.monotonic() + options.seconds
    review_id, after = None, options.after
    if options.review is not None:
        review_id = context.call("get_review_status", review_id=options.review)["review_id"]
        after = options.after or 0
    if review_id is None and context.screen.is_terminal and not context.wants_json:
        return _watch_all(context, after, until)
    return _watch_lines(context, review_id, after, until)


def _watch_all(context: Context, after: int | None, until: float | None) -> int:
    view = LiveView(context)
    with view.shown():
        at_first = True
        for events in follow(context, review_id=None, after=after, until=until):
            view.take(events, at_first=at_first)
            at_first = False
    return Exit.DONE


def _watch_lines(context: Context, review_id: str | None, after: int | None, until: float | None) -> int:
    is_lost = False
    for events in follow(context, review_id=review_id, after=after, until=until):
        if events is None:
            if not is_lost:
                context.screen.warn("The broker does not answer; waiting for it.")
            is_lost = True
            continue
        is_lost = False
        for event in events:
            _tell(context, event, with_review=review_id is None)
    return Exit.DONE


def _tell(context: Context, event: Json, *, with_review: bool) -> None:
    if context.wants_json:
        context.screen.write(json.dumps(event) + "\n")
        return
    context.screen.say(*event_line(event, with_review=with_review))
    context.screen.write("")


_OPEN = tuple(status for status in (*REVIEWERS_TURN, *PROPOSERS_TURN) if status is not Status.CLOSED)
_MOST_EVENTS = 200
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _LINE_END, _REST = "\x1b[H", "\x1b[K\r\n", "\x1b[K\x1b[J"


class LiveView:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._screen: Screen = context.screen
        self._events: deque[Json] = deque(maxlen=_MOST_EVENTS)
        self._reviews: list[Json] = []
        self._size = shutil.get_terminal_size()
        self._is_lost: bool = False

    @contextlib.contextmanager
    def shown(self) -> Generator[None]:
        """Use the alternate screen; the terminal's former lines come back at the end."""
        self._screen.write(_ENTER)
        try:
            yield
        finally:
            self._screen.write(_LEAVE)

    def take(self, events: list[Json] | None, *, at_first: bool) -> None:
        """Draw again if something has changed."""
        size = shutil.get_terminal_size()
        is_lost = events is None
        if not (events or at_first or size != self._size or is_lost != self._is_lost):
            return
        self._size, self._is_lost = size, is_lost
        if events is not None:
            self._events.extend(events)
            self._reviews = self._open_reviews()
        self._screen.write(_HOME + _LINE_END.join(self._lines()) + _REST)

    def _open_reviews(self) -> list[Json]:
        """Ask for each open state: a list of all reviews would be full of closed ones."""
        room = max(1, self._size.lines // 2)
        pages = [self._context.ask("list_reviews", status=state, limit=room)["reviews"] for state in _OPEN]
        return [review for reviews in pages for review in reviews][:room]

    def _lines(self) -> list[str]:
        height = self._size.lines
        broker = "the broker does not answer" if self._is_lost else "live"
        mark = Span(broker, Style.RED if self._is_lost else Style.GREEN)
        serves = self._context.target.locations.serves
        lines = [self._screen.clipped([Span("tandem watch", Style.BOLD), "  ", mark, "  ", serves])]
        lines.append("")
        if self._reviews:
            rows = [describe.row(review, short=True) for review in self._reviews]
            lines += self._screen.table_lines(describe.ROW_TITLES, rows, least=describe.LEAST_INTENT)
        else:
            lines.append("Nothing is open.")
        lines.append("")
        room = max(0, height - len(lines) - 1)
        newest = list(self._events)[-room:] if room else []
        lines += [self._screen.clipped(event_line(event, with_review=True)) for event in newest]
        return lines[: height - 1]


def run_wait(options: argparse.Namespace) -> int:
    context = Context(options)

    def tell(status: Json) -> None:
        if options.verbose and not context.wants_json:
            context.screen.say(*describe.outcome(status))
            context.screen.write("")

    status = wait_for_verdict(context, options.review, seconds=options.timeout, changed=tell)
    if context.wants_json:
        context.screen.json(status)
    elif not options.verbose:
        context.screen.say(*describe.outcome(status))
    return Exit(exit_of(status))
