"""Sets up each client: its own configuration, written and undone exactly.

`clients` has one module for each client, which says what it needs and where. `planning` computes the edits.
`json_format` and `toml_format` edit the two languages as text, so that foreign entries keep every byte. `files`
replaces a file completely. `receipts` records how to undo it.
"""

from gsd_review_broker.integrations.addresses import given_endpoint, running_endpoint
from gsd_review_broker.integrations.clients import client_named, every_client, everything_installable
from gsd_review_broker.integrations.clients.setup import Choice, Client, tandem_program
from gsd_review_broker.integrations.detection import ClientStatus, ConfigFile, Origin, status
from gsd_review_broker.integrations.environment import ClientRole, Environment, Scope
from gsd_review_broker.integrations.gsd_found import InstalledGsd, installed_gsd
from gsd_review_broker.integrations.install import (
    InstallOutcome,
    connected_role,
    install,
    kept_choice,
    uninstall,
    without_ours,
)
from gsd_review_broker.integrations.pool_settings import POOL, pool_settings
from gsd_review_broker.integrations.state import IntegrationState, repair, state_of

__all__ = [
    "POOL",
    "Choice",
    "Client",
    "ClientRole",
    "ClientStatus",
    "ConfigFile",
    "Environment",
    "InstallOutcome",
    "InstalledGsd",
    "IntegrationState",
    "Origin",
    "Scope",
    "client_named",
    "connected_role",
    "every_client",
    "everything_installable",
    "given_endpoint",
    "install",
    "installed_gsd",
    "kept_choice",
    "pool_settings",
    "repair",
    "running_endpoint",
    "state_of",
    "status",
    "tandem_program",
    "uninstall",
    "without_ours",
]
