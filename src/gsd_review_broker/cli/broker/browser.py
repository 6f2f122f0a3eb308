"""A page in the person's browser."""

from gsd_review_broker.cli.context import Context, keepers_connection
from gsd_review_broker.cli.exits import Exit


def open_page(context: Context, path: str) -> int:
    """The address is printed in any case: there may be no browser here."""
    import webbrowser

    connection = keepers_connection(context) or context.broker.connection
    url = connection.url + connection.post("/api/sign-in", {"page": path})["path"]
    opened = webbrowser.open(url)
    if context.wants_json:
        context.screen.json({"url": url, "opened": opened})
    else:
        context.screen.say(url)
    return Exit.DONE
