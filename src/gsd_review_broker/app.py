"""The composition root: it builds every part, starts them in order and stops them in reverse."""

import asyncio
import contextlib
import gc
import importlib.util
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path

from starlette.applications import Starlette
from starlette.routing import Route

from gsd_review_broker.domain.gate.policy import GatePolicy
from gsd_review_broker.domain.text import Identity
from gsd_review_broker.errors import StartError
from gsd_review_broker.gate.receipts import ReceiptSigner, TicketOffice
from gsd_review_broker.git.repository import GitRepository
from gsd_review_broker.mcp.server import make_endpoints
from gsd_review_broker.notify import Notifier
from gsd_review_broker.observe.telemetry import Meters
from gsd_review_broker.pool.launcher import Launcher, PoolSite
from gsd_review_broker.pool.policy import PoolLimits
from gsd_review_broker.pool.supervisor import Neighbours, Supervisor
from gsd_review_broker.ports.store import OwnedStore
from gsd_review_broker.ports.world import Clock, SystemClock, Wakeups
from gsd_review_broker.service.access import Access, Auth, Identification
from gsd_review_broker.service.approvals import ApprovalWatcher
from gsd_review_broker.service.broker import Broker, make_broker
from gsd_review_broker.service.core import Core, Liveness
from gsd_review_broker.service.pool_records import WorkWatcher
from gsd_review_broker.settings import locations
from gsd_review_broker.settings.config import POOL, Configuration, SettingsWatch
from gsd_review_broker.settings.gate import read_policy
from gsd_review_broker.settings.listening import listening
from gsd_review_broker.settings.names import person_here
from gsd_review_broker.settings.runtime_file import keeper_token, new_secret
from gsd_review_broker.settings.schema import Problem, Problems, resolved
from gsd_review_broker.store.sqlite_store import SqliteStore
from gsd_review_broker.web.api.gate import gate_routes
from gsd_review_broker.web.api.health import health_endpoint, metrics_endpoint, problem_routes
from gsd_review_broker.web.api.people import api_routes, pool_routes
from gsd_review_broker.web.api.tokens import SignIns, token_routes
from gsd_review_broker.web.edge import Admission, Edge, Guard, LateRoutes, Pages


class Application:
    """One broker: its store, its services and its HTTP application."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        port: int,
        local_port: int | None = None,
        clock: Clock | None = None,
        pool_limits: PoolLimits | None = None,
    ) -> None:
        # Long on purpose: all parts are composed here, in the order in which they need each other.
        settings = configuration.settings
        policy = settings.policy()
        on_postgresql = configuration.database.url is not None
        clock = clock or (_database_clock() if on_postgresql else SystemClock())
        self.wakeups = Wakeups()
        # Clients recognize this process by it.
        self.secret = new_secret()
        meters = Meters()
        self.store = _store(configuration, clock, self.wakeups, meters)
        access = Access()
        signer = ReceiptSigner.of_file(locations.key_file())
        self.store.watchers += [WorkWatcher(access), ApprovalWatcher(signer)]
        core = Core(
            store=self.store,
            repository=GitRepository(
                configuration.root,
                allowed_roots=tuple(Path(root).expanduser() for root in settings.allowed_roots),
            ),
            wakeups=self.wakeups,
            clock=clock,
            policy=policy,
            liveness=Liveness(clock, access),
            access=access,
        )
        person = person_here()
        self.broker = make_broker(
            core,
            serves=configuration.serves,
            database_name=configuration.database.name,
            meters=meters,
            gate_policy=partial(_gate_policy, configuration.chosen),
            ticket_office=TicketOffice(configuration.chosen),
            signer=signer,
            identification=Identification(
                self.store,
                access,
                clock,
                auth=Auth(settings.auth),
                keeper=person,
                keeper_token=keeper_token(self.secret),
            ),
        )
        place = listening(settings, port=port, local_port=local_port)
        self.pool = _pool(configuration, core, self.broker, url=place.url, limits=pool_limits)
        self.broker.pool.attach(self.pool)
        self._endpoints = make_endpoints(self.broker, body_limit=policy.limits.body)
        url = self.url = place.url
        self._notifier = Notifier(
            self.broker, self.wakeups, command=tuple(settings.notify_command), person=person, url=url
        )
        self._sign_ins = SignIns(self.broker.sign_in_links, needs_token=self.broker.identification.needs_token)
        self.routes = self._routes(self.broker, configuration, person, url)
        self.asgi = Edge(
            Guard(hosts=place.hosts, origins=place.origins, body_limit=policy.limits.body),
            Admission(self.broker.identification, self.broker.gatekeeper, tools=self._endpoints.by_path),
            endpoints=self._endpoints.by_path,
            pages=Pages(
                Starlette(routes=self.routes, lifespan=self._lifespan),
                lambda project: Starlette(
                    routes=self._routes(self.broker.for_project(project), configuration, person, url)
                ),
                body_limit=policy.limits.body,
            ),
        )

    def _routes(self, broker: Broker, configuration: Configuration, person: Identity, url: str) -> list[Route]:
        watch = SettingsWatch(configuration.root)

        def problems() -> list[Problem]:
            return [*configuration.problems, *watch.problems()]

        return [
            Route(
                "/healthz",
                health_endpoint(
                    configuration.serves, str(configuration.database), self.secret, is_ready=self.store.is_ready
                ),
            ),
            Route("/metrics", metrics_endpoint(broker)),
            *api_routes(broker),
            *pool_routes(broker),
            *problem_routes(problems),
            *token_routes(broker),
            *self._sign_ins.routes(),
            *gate_routes(broker),
            # Everything else is a page.
            Route("/{page:path}", LateRoutes(lambda: self._dashboard(broker, configuration, person, url, problems))),
        ]

    def _dashboard(
        self, broker: Broker, configuration: Configuration, person: Identity, url: str, problems: Problems
    ) -> list[Route]:
        from gsd_review_broker.web.pages.dashboard import dashboard_routes  # noqa: PLC0415 - only some brokers need it

        return dashboard_routes(
            broker,
            self.wakeups,
            person=person,
            serves=configuration.serves,
            url=url,
            form_limit=configuration.settings.policy().limits.body,
            problems=problems,
        )

    @contextlib.asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncGenerator[None]:
        """Start all parts but the store, which is open already: its problems are reported in one sentence."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self.store.close)
            await self.store.start()
            stack.push_async_callback(self._endpoints.stop)
            neighbours = Neighbours(self.store, self.broker.pool.records, self.pool.roster)
            beating = asyncio.create_task(neighbours.run())
            stack.callback(beating.cancel)
            sweeping = asyncio.create_task(self.broker.sweep.run())
            stack.callback(sweeping.cancel)
            stack.push_async_callback(self.pool.stop)
            await self.pool.start()
            stack.push_async_callback(self._notifier.close)
            notifying = asyncio.create_task(self._notifier.run())
            stack.callback(notifying.cancel)
            # Objects that live as long as the broker are excluded from garbage collection.
            gc.collect()
            gc.freeze()
            gc.set_threshold(50_000, 20, 20)
            gc.enable()
            yield
            self.wakeups.close()


def _store(configuration: Configuration, clock: Clock, wakeups: Wakeups, meters: Meters) -> OwnedStore:
    if configuration.database.url is None:
        return SqliteStore(configuration.database.path, clock=clock, wakeups=wakeups, meters=meters)
    from gsd_review_broker.store.postgres.store import PostgresStore  # noqa: PLC0415 - only some brokers need it

    return PostgresStore(
        configuration.database,
        clock=clock,
        wakeups=wakeups,
        meters=meters,
        listen_url=configuration.settings.db_listen,
    )


def _database_clock() -> Clock:
    if importlib.util.find_spec("asyncpg") is None:
        raise StartError("PostgreSQL needs a package that is not installed; install gsd-review-broker[postgres].")
    from gsd_review_broker.store.postgres.engine import DatabaseClock  # noqa: PLC0415 - only some brokers need it

    return DatabaseClock()


def _pool(
    configuration: Configuration, core: Core, broker: Broker, *, url: str, limits: PoolLimits | None
) -> Supervisor:
    """Make the pool. Reviewers' folders are outside the repository, where a proposal may have written."""
    settings = configuration.settings.reviewer_pool
    root, template = configuration.root, settings.prompt_template_path
    name = configuration.database.key
    workspace = resolved(settings.workspace_path, root) if settings.workspace_path else root or Path.home()
    place = PoolSite(
        broker_url=f"{url}/mcp/reviewer",
        workspace=workspace,
        folder=locations.state_folder() / "reviewers" / name,
        template=resolved(template, root) if template else None,
        pool=name,
    )
    supervisor = Supervisor(
        settings,
        Launcher(settings, place),
        records=broker.pool.records,
        access=core.access,
        clock=core.clock,
        wakeups=core.wakeups,
        limits=limits,
    )
    of_pool = [problem for problem in configuration.problems if problem.feature == POOL]
    supervisor.roster.problem = " ".join(f"{problem.message}. {problem.fix}" for problem in of_pool) or None
    return supervisor


def _gate_policy(chosen: Path | None, root: str | None) -> GatePolicy:
    """Read the policy for each question: it applies from the moment it is written."""
    project = locations.project_file(Path(root)) if root else None
    return read_policy(project, locations.user_file(), chosen=chosen)
