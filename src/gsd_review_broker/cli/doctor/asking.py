"""How the doctor asks the running broker: with the user's token, or as whoever runs a broker of this machine."""

from contextlib import suppress

from gsd_review_broker.client import RunningBroker, Target, connect
from gsd_review_broker.settings.runtime_file import UntrustedRuntimeFileError, announced, keeper_token
from gsd_review_broker.settings.user_files import own_token


def connected(target: Target) -> RunningBroker:
    """Raises BrokerError."""
    return connect(target, token=own_token() or _keepers_token(target))


def _keepers_token(target: Target) -> str | None:
    """Whoever can read the runtime file of a broker needs no other token."""
    if target.url is not None:
        return None
    with suppress(UntrustedRuntimeFileError):
        announcement = announced(target.locations.database)
        return keeper_token(announcement.secret) if announcement else None
    return None
