"""Setting up each client: its own configuration, written and taken back exactly.

`wanted` says what a client needs and where; `planning` finds the edits; `json_format` and `toml_format` know the two
languages by their text, so that foreign entries keep every byte; `files` replaces a file whole; `receipts` remembers
how to go back.
"""

from gsd_review_broker.integrations.clients.wanted import Choice
from gsd_review_broker.integrations.detection import ClientStatus, ConfigFile, Origin, status
from gsd_review_broker.integrations.environment import Client, ClientRole, Environment, Scope
from gsd_review_broker.integrations.install import InstallOutcome, endpoint, install, uninstall
from gsd_review_broker.integrations.plugin import write_plugin

__all__ = [
    "Choice",
    "Client",
    "ClientRole",
    "ClientStatus",
    "ConfigFile",
    "Environment",
    "InstallOutcome",
    "Origin",
    "Scope",
    "endpoint",
    "install",
    "status",
    "uninstall",
    "write_plugin",
]
