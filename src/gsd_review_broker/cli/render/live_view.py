"""`tandem watch` on a terminal: what is open, and what just happened, on one screen that is redrawn."""

import contextlib
import shutil
from collections import deque
from collections.abc import Generator

from gsd_review_broker.cli.context import Context
from gsd_review_broker.cli.render import describe
from gsd_review_broker.cli.render.describe import event_line
from gsd_review_broker.cli.render.screen import Screen, Span, Style
from gsd_review_broker.client.connection import Json
from gsd_review_broker.domain.words import PROPOSERS_TURN, REVIEWERS_TURN, Status

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
        """On the alternate screen; the person's own lines come back whatever happens."""
        self._screen.write(_ENTER)
        try:
            yield
        finally:
            self._screen.write(_LEAVE)

    def take(self, events: list[Json] | None, *, at_first: bool) -> None:
        """Draws only if something has changed."""
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
        """Each state has its own page: a list of all would be full of closed ones."""
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
