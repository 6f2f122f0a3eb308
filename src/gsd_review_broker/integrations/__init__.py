"""Setting up each client: its own configuration, written and taken back exactly.

`wanted` says what a client needs and where; `planning` finds the edits; `json_format` and `toml_format` know the two
languages by their text, so that foreign entries keep every byte; `files` replaces a file whole; `receipts` remembers
how to go back.
"""

from gsd_review_broker.integrations.installing import Outcome, endpoint, install, uninstall
from gsd_review_broker.integrations.plugin import write_plugin
from gsd_review_broker.integrations.presence import ClientStatus, Origin, Place, status
from gsd_review_broker.integrations.surroundings import Client, Role, Scope, Surroundings
from gsd_review_broker.integrations.wanted import Choice

__all__ = [
    "Choice",
    "Client",
    "ClientStatus",
    "Origin",
    "Outcome",
    "Place",
    "Role",
    "Scope",
    "Surroundings",
    "endpoint",
    "install",
    "status",
    "uninstall",
    "write_plugin",
]
