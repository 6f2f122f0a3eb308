"""A page in the person's browser."""

import webbrowser

from gsd_review_broker.cli.exits import Exit
from gsd_review_broker.cli.session import Session


def open_page(session: Session, path: str) -> int:
    """Its address is printed either way: there may be no browser here."""
    url = session.broker.connection.url + path
    opened = webbrowser.open(url)
    if session.wants_json:
        session.screen.json({"url": url, "opened": opened})
    else:
        session.screen.say(url)
    return Exit.DONE
