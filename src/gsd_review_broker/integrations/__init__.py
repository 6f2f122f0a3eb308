"""Setting up each client: its own configuration, written and taken back exactly.

`clients` has one module for each client, which says what it needs and where; `planning` finds the edits; `json_format`
and `toml_format` know the two languages by their text, so that foreign entries keep every byte; `files` replaces a file
whole; `receipts` remembers how to go back.
"""

from gsd_review_broker.integrations.clients import client_named, every_client
from gsd_review_broker.integrations.clients.setup import Choice, Client
from gsd_review_broker.integrations.detection import ClientStatus, ConfigFile, Origin, status
from gsd_review_broker.integrations.environment import ClientRole, Environment, Scope
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
    "client_named",
    "endpoint",
    "every_client",
    "install",
    "status",
    "uninstall",
    "write_plugin",
]
