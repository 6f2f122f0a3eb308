"""Sets up each client: its own configuration, written and undone exactly.

`clients` has one module for each client, which says what it needs and where. `planning` computes the changes and
carries them out. `formats` edits JSON and TOML as text, so that foreign entries keep every byte. `files` replaces a
file. `receipts` plans one file, and keeps what it said before. `detection` tells what is installed.
"""

from gsd_review_broker.integrations.clients import (
    POOL,
    client_named,
    every_client,
    everything_installable,
    pool_settings,
)
from gsd_review_broker.integrations.clients.gsd import InstalledGsd, installed_gsd
from gsd_review_broker.integrations.clients.setup import (
    Choice,
    Client,
    Environment,
    Scope,
    given_endpoint,
    running_endpoint,
    tandem_program,
)
from gsd_review_broker.integrations.detection import (
    ClientStatus,
    ConfigFile,
    EntryOwner,
    IntegrationState,
    state_of,
    status,
)
from gsd_review_broker.integrations.planning import (
    ClientPlan,
    Planner,
    carry_out,
    connected_role,
    kept_choice,
    repair,
    without_ours,
)

__all__ = [
    "POOL",
    "Choice",
    "Client",
    "ClientPlan",
    "ClientStatus",
    "ConfigFile",
    "EntryOwner",
    "Environment",
    "InstalledGsd",
    "IntegrationState",
    "Planner",
    "Scope",
    "carry_out",
    "client_named",
    "connected_role",
    "every_client",
    "everything_installable",
    "given_endpoint",
    "installed_gsd",
    "kept_choice",
    "pool_settings",
    "repair",
    "running_endpoint",
    "state_of",
    "status",
    "tandem_program",
    "without_ours",
]
