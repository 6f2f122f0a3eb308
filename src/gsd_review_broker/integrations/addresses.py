"""The address that a client is given when it connects over HTTP: the one at which the right broker answers."""

from urllib.parse import urlsplit

from gsd_review_broker import LOOPBACK
from gsd_review_broker.client import Target, UnreachableError, connect
from gsd_review_broker.client.discovery import answering, described
from gsd_review_broker.domain.words import Audience
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.integrations.environment import Environment, Scope


def running_endpoint(role: Audience, scope: Scope, around: Environment) -> str:
    """Of the broker that serves this project, or this account, at this moment."""
    try:
        broker = connect(_target(scope, around))
    except UnreachableError as error:
        hint = "Start it with `tandem up`, then install again. Without --http, the client starts the broker by itself."
        raise UnreachableError(f"there is no address to write: {error.message}", hint) from error
    broker.connection.close()
    return broker.connection.url + role.endpoint


def given_endpoint(address: str, role: Audience, scope: Scope, around: Environment) -> str:
    """As the user gave it, unless the broker of another repository answers there."""
    endpoint = _checked(address, role)
    broker = answering(endpoint) if urlsplit(endpoint).hostname in LOOPBACK else None
    target = _target(scope, around, url=endpoint)
    if broker is not None and not target.accepts(broker.serves):
        raise BrokerError(
            Code.CONFLICT,
            f"the broker at {broker.connection.url} serves {broker.serves}, not {described(target.locations)}",
            "Leave --url out: the client then finds the broker of its own folder.",
        )
    return endpoint


def _target(scope: Scope, around: Environment, url: str | None = None) -> Target:
    # BROKER_URL names the broker of a running client, and is not meant for a file.
    folder = around.project() if scope is Scope.PROJECT else around.home
    environment = {name: value for name, value in around.variables.items() if name != "BROKER_URL"}
    return Target.of(folder, url=url, user=scope is Scope.USER, environment=environment)


def _checked(address: str, role: Audience) -> str:
    try:
        parts = urlsplit(address)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not address.isprintable() or set(address) & set(" \"'\\<>"):
        raise BrokerError(
            Code.INVALID_ARGUMENT, f"{address!r} is not an http address", "It looks like http://127.0.0.1:8321"
        )
    return address if urlsplit(address).path.rstrip("/") else address.rstrip("/") + role.endpoint
