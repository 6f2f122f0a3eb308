"""The server around the application: the port, the signals, the start and the stop."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
import uvicorn

from gsd_review_broker.app import Application
from gsd_review_broker.client.http import HttpConnection
from gsd_review_broker.errors import StartError
from gsd_review_broker.git.discovery import exclude_from_git
from gsd_review_broker.observe import logs, telemetry
from gsd_review_broker.ports.world import SystemClock
from gsd_review_broker.service.wire.encoding import iso
from gsd_review_broker.settings.config import Configuration, refuse_tracked
from gsd_review_broker.settings.listening import bracketed, needs_local_listener
from gsd_review_broker.settings.runtime_file import RuntimeFile
from gsd_review_broker.settings.schema import Settings
from gsd_review_broker.web.edge import BoundedHttpProtocol

if TYPE_CHECKING:
    import ssl

log = structlog.get_logger()

_SHUTDOWN_SECONDS = 1
_LOOK_SECONDS = 0.05
# Agents think for longer than a web page's reader, and a connection that is closed during a call looks like a failure.
_IDLE_SECONDS = 120
_LONGEST_HEALTH = 64 * 1024


@dataclass(frozen=True, slots=True)
class PublicListener:
    """The address that the user chose, where the loopback has a listener of its own."""

    socket: socket.socket
    tls: "ssl.SSLContext | None"

    @property
    def url(self) -> str:
        host, port = self.socket.getsockname()[:2]
        return f"{'http' if self.tls is None else 'https'}://{bracketed(host)}:{port}"


class _Server(uvicorn.Server):
    """uvicorn, except for signals: waits are answered first, and the exit code is ours."""

    def __init__(
        self,
        config: uvicorn.Config,
        application: Application,
        announce: RuntimeFile,
        public: PublicListener | None,
    ) -> None:
        super().__init__(config)
        self._public = public
        self._application = application
        self._announce = announce
        self.interrupted = False

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        kinds = (signal.SIGINT, signal.SIGTERM)
        before = {kind: signal.signal(kind, self.handle_exit) for kind in kinds}
        try:
            yield
        finally:
            for kind, handler in before.items():
                signal.signal(kind, handler)

    def handle_exit(self, sig: int, frame: Any) -> None:
        self.interrupted = sig == signal.SIGINT
        self._application.wakeups.close()
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self._public is not None:
            self.servers.append(await self._listening(self._public))
        if self.started:
            with _explained():
                self._announce.write()
            facts = {"url": self._announce.url, "serves": self._announce.serves, "pid": os.getpid()}
            if self._public is not None:
                # People on other machines use this one; the first is for programs here.
                facts["for_others"] = self._public.url
            log.info("broker_ready", **facts)

    async def _listening(self, public: PublicListener) -> asyncio.Server:
        def protocol() -> asyncio.Protocol:
            return BoundedHttpProtocol(self.config, self.server_state, self.lifespan.state)

        return await asyncio.get_running_loop().create_server(
            protocol, sock=public.socket, ssl=public.tls, backlog=self.config.backlog
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Done while the database's lock is still ours: afterwards the file may belong to the next broker.
        self._announce.remove()
        await self._let_answers_out()
        await super().shutdown(sockets)

    async def _let_answers_out(self) -> None:
        """Wait while answers keep going out: on a busy machine the answers to all waiting calls take long."""
        left = {task for task in self.server_state.tasks if not task.done()}
        since = time.monotonic()
        while left and not self.force_exit and time.monotonic() - since < _SHUTDOWN_SECONDS:
            done, left = await asyncio.wait(left, timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if done:
                since = time.monotonic()


def serve(configuration: Configuration) -> int:
    """Serve until TERM or INT. Raises StartError with one sentence if it cannot start."""
    refuse_tracked(configuration.database, configuration.root)
    settings = configuration.settings
    logs.configure(
        level=settings.log_level,
        form=settings.log_format,
        file=Path(settings.log_file).expanduser() if settings.log_file else None,
    )
    for problem in configuration.problems:
        log.warning("problem", feature=problem.feature, message=problem.message, fix=problem.fix)
    telemetry.configure_tracing(os.environ)
    with contextlib.ExitStack() as stack:
        chosen = stack.enter_context(contextlib.closing(_bind(settings.host, settings.port)))
        port, local, public = chosen.getsockname()[1], chosen, None
        if needs_local_listener(settings):
            local = stack.enter_context(contextlib.closing(_bind("127.0.0.1", 0)))
            public = PublicListener(chosen, _tls(settings))
        with _explained():
            local_port = local.getsockname()[1] if public else None
            application = Application(configuration, port=port, local_port=local_port)
        application.store.open()
        if configuration.root is not None:
            database, root = configuration.database, configuration.root
            if database.is_inside(root):
                exclude_from_git(root, f"/{database.path.relative_to(root).as_posix()}*")
        announce = RuntimeFile(
            configuration.database,
            url=application.url,
            serves=configuration.serves,
            started_at=iso(SystemClock().now()),
            secret=application.secret,
        )
        server = _Server(_uvicorn_config(application, settings), application, announce, public)
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(server.serve(sockets=[local]))
        finally:
            application.pool.roster.kill_at_once()
    return 130 if server.interrupted else 0


@contextlib.contextmanager
def _explained() -> Generator[None]:
    """Report a full disk at the start in one sentence, like a database that cannot be opened."""
    try:
        yield
    except OSError as error:
        raise StartError(
            f"the broker cannot write a file that it needs: {error}; look at the space on the disk and at the "
            "permissions of the folder."
        ) from error


def _uvicorn_config(application: Application, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        application.asgi,
        http=BoundedHttpProtocol,
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        # What a proxy says about a request applies only if the user trusts that proxy.
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies,
        backlog=2048,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        timeout_keep_alive=_IDLE_SECONDS,
    )


def _tls(settings: Settings) -> "ssl.SSLContext | None":
    if settings.tls_certificate is None or settings.tls_key is None:
        return None
    import ssl  # noqa: PLC0415 - most brokers have no use for it

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    certificate, key = Path(settings.tls_certificate).expanduser(), Path(settings.tls_key).expanduser()
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise StartError(
            f"TLS cannot be used: tls_certificate {certificate} or tls_key {key} cannot be read ({error})."
        ) from error
    return context


def _loop_factory() -> Any:
    if sys.platform == "win32":
        return None
    import uvloop  # noqa: PLC0415 - there is none on Windows

    return uvloop.new_event_loop


def _bind(host: str, port: int) -> socket.socket:
    """Bind the port here, so that the error for a port in use can name its owner."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    if sys.platform != "win32":
        # On Windows the option would let two programs share the port.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(2048)
    except OSError as error:
        listening.close()
        raise StartError(
            f"port {port} of {host} cannot be used ({error.strerror}){_who_is_there(host, port)}; "
            "choose another with --port, or stop that program."
        ) from error
    listening.setblocking(False)
    return listening


def _who_is_there(host: str, port: int) -> str:
    """Ask what listens there, without any proxy. Any program may answer, with anything."""
    asking = HttpConnection(host, port)
    answer = b""
    try:
        _, _, pieces = asking.stream("GET", "/healthz", None, {}, patience=1)
        while len(answer) < _LONGEST_HEALTH and (piece := next(pieces, b"")):
            answer += piece
        health = json.loads(answer)
        return f": a broker with pid {health['pid']} that serves {health['serves']} has it"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    finally:
        asking.close()
