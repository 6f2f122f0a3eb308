"""Where the broker listens, and the names by which it may be called.

Programs of this machine (commands, the git hook, reviewers) always reach it by plain HTTP on the loopback. If it
listens on another address, or with TLS, that is a second listener.
"""

from dataclasses import dataclass

from gsd_review_broker import LOOPBACK
from gsd_review_broker.errors import StartError
from gsd_review_broker.settings.locations import COMMAND_LINE, ENVIRONMENT, user_file
from gsd_review_broker.settings.schema import Settings

_EVERYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104 - the names, to recognize them
_LOCAL = "127.0.0.1, localhost and ::1"
_STANDARD_PORTS = ("", ":80", ":443")


@dataclass(frozen=True, kw_only=True, slots=True)
class Listening:
    # Of the loopback.
    url: str
    hosts: frozenset[str]
    origins: frozenset[str]


def refuse_open_door(settings: Settings, origins: dict[str, str]) -> None:
    """Other machines are let in only by the user's own decision, and only with tokens."""
    where = origins.get("host", "default")
    if not settings.is_local and where not in {str(user_file()), ENVIRONMENT, COMMAND_LINE}:
        raise StartError(
            f"{where}: host: {settings.host!r} is not this machine alone, and a repository must not decide that; here "
            f"allowed are {_LOCAL}; set others in {user_file()}, by BROKER_HOST or with --host."
        )
    if not settings.is_local and (settings.auth != "token" or not settings.host):
        raise StartError(
            f"{where}: host: {settings.host!r} is not this machine alone; without tokens allowed are {_LOCAL} "
            "(for other addresses set auth to token)."
        )
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        missing = "tls_key" if settings.tls_key is None else "tls_certificate"
        raise StartError(f"{missing} is missing: TLS needs both tls_certificate and tls_key.")


def needs_local_listener(settings: Settings) -> bool:
    """Does the address that the user chose leave the loopback out, or speak TLS there?"""
    is_reached = settings.is_local or settings.host in _EVERYWHERE
    return not is_reached or settings.tls_certificate is not None


def listening(settings: Settings, *, port: int, local_port: int | None = None) -> Listening:
    """`local_port` is that of the local listener, if there is one."""
    own = port if local_port is None else local_port
    host = settings.host if settings.is_local and local_port is None else "127.0.0.1"
    local = {name for each in LOOPBACK for name in _with_port(bracketed(each), own)}
    public = {name for each in _public_names(settings, port) for name in _spelled(each)}
    scheme = "https" if settings.tls_certificate or settings.trusted_proxies else "http"
    return Listening(
        url=f"http://{bracketed(host)}:{own}",
        hosts=frozenset(local | public),
        origins=frozenset({f"http://{name}" for name in local} | {f"{scheme}://{name}" for name in public}),
    )


def _with_port(name: str, port: int) -> tuple[str, ...]:
    # HTTP's own port is left out by clients.
    return (f"{name}:{port}", name) if port == 80 else (f"{name}:{port}",)  # noqa: PLR2004 - HTTP's usual port


def _public_names(settings: Settings, port: int) -> list[str]:
    names = [name.lower() for name in settings.allowed_hosts]
    if settings.host not in _EVERYWHERE and not settings.is_local:
        names.append(f"{bracketed(settings.host)}:{port}")
    if settings.tls_certificate:
        names += [f"{bracketed(name)}:{port}" for name in LOOPBACK]
    return names


def _spelled(name: str) -> list[str]:
    """Add the standard ports to a name without one."""
    has_port = name.rpartition(":")[2].isdigit() and not name.endswith("]")
    return [name] if has_port else [f"{name}{port}" for port in _STANDARD_PORTS]


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
