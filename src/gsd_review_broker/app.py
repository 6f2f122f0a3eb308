"""The composition root: builds every part, starts them in order, ends them in reverse."""

import asyncio
import contextlib
import gc
import getpass
import http.client
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route

from gsd_review_broker.clock import SystemClock
from gsd_review_broker.domain.model import HUMAN_PREFIX
from gsd_review_broker.errors import StartError
from gsd_review_broker.git.checkout import exclude_from_git, is_tracked
from gsd_review_broker.git.repository import GitRepository
from gsd_review_broker.mcp.server import make_endpoints
from gsd_review_broker.notify import Notifier
from gsd_review_broker.observe import logs, tracing
from gsd_review_broker.observe.meters import Meters
from gsd_review_broker.pool.launch.launcher import Launcher, PoolSite, pool_name
from gsd_review_broker.pool.policy import PoolLimits
from gsd_review_broker.pool.supervisor import Supervisor
from gsd_review_broker.ports import Clock
from gsd_review_broker.service.access import Access
from gsd_review_broker.service.broker import Broker, make_broker
from gsd_review_broker.service.core import Core
from gsd_review_broker.service.liveness import Liveness
from gsd_review_broker.service.pool.records import WorkWatcher
from gsd_review_broker.service.wire.timestamps import iso
from gsd_review_broker.settings import locations
from gsd_review_broker.settings.config import Configuration
from gsd_review_broker.settings.locations import project_file
from gsd_review_broker.settings.pool import resolved
from gsd_review_broker.settings.runtime_file import RuntimeFile
from gsd_review_broker.store.sqlite.store import SqliteStore
from gsd_review_broker.wakeups import LocalWakeups
from gsd_review_broker.web.api.health import health_endpoint, metrics_endpoint
from gsd_review_broker.web.api.people import api_routes
from gsd_review_broker.web.api.pool import pool_routes
from gsd_review_broker.web.dispatch import Dispatch
from gsd_review_broker.web.guard import HostAndOriginGuard
from gsd_review_broker.web.pages.dashboard import dashboard_routes

log = structlog.get_logger()

_SHUTDOWN_SECONDS = 1
# Agents think for longer than a web page's reader; a connection that is closed under a call looks like a failure.
_IDLE_SECONDS = 120
_LONGEST_HEALTH = 64 * 1024


class Application:
    """One broker: its store, its services and its HTTP application."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        port: int,
        clock: Clock | None = None,
        pool_limits: PoolLimits | None = None,
    ) -> None:
        settings = configuration.settings
        policy = settings.policy()
        clock = clock or SystemClock()
        self.wakeups = LocalWakeups()
        meters = Meters()
        self.store = SqliteStore(configuration.database, clock=clock, wakeups=self.wakeups, meters=meters)
        access = Access()
        self.store.watchers.append(WorkWatcher(access))
        core = Core(
            store=self.store,
            repository=GitRepository(
                configuration.root,
                allowed_roots=tuple(Path(root).expanduser() for root in settings.allowed_roots),
                timeout=settings.git_timeout_seconds,
            ),
            wakeups=self.wakeups,
            clock=clock,
            policy=policy,
            presence=Liveness(clock, access),
            access=access,
        )
        self.broker = make_broker(
            core, serves=configuration.serves, database_name=configuration.database.name, meters=meters
        )
        self.pool = _pool(configuration, core, self.broker, port=port, limits=pool_limits)
        self.broker.reviewers.attach(self.pool)
        self._endpoints = make_endpoints(self.broker, body_limit=policy.limits.body)
        person, url = _person(), f"http://{_bracketed(settings.host)}:{port}"
        self._notifier = Notifier(
            self.broker, self.wakeups, command=tuple(settings.notify_command), person=person, url=url
        )
        pages = Starlette(routes=self._routes(configuration, person, url), lifespan=self._lifespan)
        dispatch = Dispatch({path: manager.asgi_app for path, manager in self._endpoints.items()}, otherwise=pages)
        self.asgi = HostAndOriginGuard(dispatch, port=port, body_limit=policy.limits.body)

    def _routes(self, configuration: Configuration, person: str, url: str) -> list[Route]:
        limit = configuration.settings.policy().limits.body
        return [
            Route("/healthz", health_endpoint(configuration.serves, str(configuration.database))),
            Route("/metrics", metrics_endpoint(self.broker)),
            *api_routes(self.broker),
            *pool_routes(self.broker),
            *dashboard_routes(
                self.broker, self.wakeups, person=person, serves=configuration.serves, url=url, form_limit=limit
            ),
        ]

    @contextlib.asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncGenerator[None]:
        """The store is open before, so that what is wrong with it is told in one sentence."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self.store.close)
            for manager in self._endpoints.values():
                await stack.enter_async_context(manager.run())
            sweeping = asyncio.create_task(self.broker.sweep.run())
            stack.callback(sweeping.cancel)
            stack.push_async_callback(self.pool.stop)
            await self.pool.start()
            stack.push_async_callback(self._notifier.close)
            notifying = asyncio.create_task(self._notifier.run())
            stack.callback(notifying.cancel)
            # What lives as long as the broker is not looked at again by the collector.
            gc.collect()
            gc.freeze()
            gc.set_threshold(50_000, 20, 20)
            yield
            self.wakeups.close()


class _Server(uvicorn.Server):
    """uvicorn, except for signals: waits are answered first, and the exit code is ours."""

    def __init__(self, config: uvicorn.Config, application: Application, announce: RuntimeFile) -> None:
        super().__init__(config)
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
        if self.started:
            self._announce.write()
            log.info("broker_ready", url=self._announce.url, serves=self._announce.serves, pid=os.getpid())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # While the database's lock is still ours: afterwards the file may be the next broker's.
        self._announce.remove()
        await super().shutdown(sockets)


def serve(configuration: Configuration) -> int:
    """Until TERM or INT. Raises StartError with one sentence if it cannot start."""
    _refuse_foreign_pool(configuration)
    settings = configuration.settings
    logs.configure(
        level=settings.log_level,
        form=settings.log_format,
        file=Path(settings.log_file).expanduser() if settings.log_file else None,
        file_bytes=settings.log_file_bytes,
        file_count=settings.log_file_count,
    )
    tracing.configure(os.environ)
    listening = _bind(settings.host, settings.port)
    with contextlib.closing(listening):
        port = listening.getsockname()[1]
        application = Application(configuration, port=port)
        application.store.open()
        if configuration.root is not None:
            _keep_out_of_git(configuration.root, configuration.database)
        announce = RuntimeFile(
            configuration.database,
            url=f"http://{_bracketed(settings.host)}:{port}",
            serves=configuration.serves,
            started_at=iso(SystemClock().now()),
        )
        server = _Server(_uvicorn_config(application), application, announce)
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(server.serve(sockets=[listening]))
        finally:
            application.pool.roster.kill_at_once()
    return 130 if server.interrupted else 0


def _pool(
    configuration: Configuration, core: Core, broker: Broker, *, port: int, limits: PoolLimits | None
) -> Supervisor:
    """Reviewers have their folders outside the repository: a proposal may have written what lies in it."""
    settings = configuration.settings.reviewer_pool
    root, template = configuration.root, settings.prompt_template_path
    name = pool_name(configuration.database)
    workspace = resolved(settings.workspace_path, root) if settings.workspace_path else root or Path.home()
    place = PoolSite(
        broker_url=f"http://{_bracketed(configuration.settings.host)}:{port}/mcp/reviewer",
        workspace=workspace,
        folder=locations.state_folder() / "reviewers" / name,
        template=resolved(template, root) if template else None,
        pool=name,
    )
    return Supervisor(
        settings,
        Launcher(settings, place),
        records=broker.reviewers.records,
        access=core.access,
        clock=core.clock,
        wakeups=core.wakeups,
        limits=limits,
    )


def _refuse_foreign_pool(configuration: Configuration) -> None:
    """Reviewers cost money: a file that came with a clone cannot start them, unless the user has said so too."""
    root, origins = configuration.root, configuration.origins
    said_by = {origin for key, origin in origins.items() if key.startswith("reviewer_pool.")}
    if root is None or not configuration.settings.reviewer_pool.is_on or said_by - {str(project_file(root))}:
        return
    if is_tracked(root, project_file(root)):
        raise StartError(
            f"{project_file(root)}: reviewer_pool: git tracks this file, so it may have come with the repository, and "
            "a repository must not start reviewers by itself; allow it with `tandem pool enable --scope user`, or set "
            "BROKER_REVIEWER_POOL__ENABLED to true or false."
        )


def _uvicorn_config(application: Application) -> uvicorn.Config:
    return uvicorn.Config(
        application.asgi,
        http="httptools",
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        backlog=2048,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        timeout_keep_alive=_IDLE_SECONDS,
    )


def _loop_factory() -> Any:
    if sys.platform == "win32":
        return None
    import uvloop  # noqa: PLC0415 - there is none on Windows

    return uvloop.new_event_loop


def _person() -> str:
    """Who sits at this machine, by the name of the account that the broker runs under."""
    try:
        return HUMAN_PREFIX + getpass.getuser()
    except (OSError, KeyError, ImportError):
        return HUMAN_PREFIX + "user"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _bind(host: str, port: int) -> socket.socket:
    """Bound by us, so that a port that is taken is told with who has it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    if sys.platform != "win32":
        # There it would let two programs share the port.
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
    """Asked directly, whatever proxy the environment names; any program may answer, and anything."""
    asking = http.client.HTTPConnection(host, port, timeout=1)
    try:
        asking.request("GET", "/healthz")
        health = json.loads(asking.getresponse().read(_LONGEST_HEALTH))
        return f": a broker with pid {health['pid']} that serves {health['serves']} has it"
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return ""
    finally:
        asking.close()


def _keep_out_of_git(root: Path, database: Path) -> None:
    if database.is_relative_to(root):
        exclude_from_git(root, f"/{database.relative_to(root).as_posix()}*")
