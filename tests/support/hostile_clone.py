"""A repository whose owner wants to harm the people who work in it."""

import contextlib
import http.server
import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

from gsd_review_broker.files import locks
from gsd_review_broker.settings.database import Database
from gsd_review_broker.settings.state_files import lock_path
from tests.support.processes import DATABASE

SECRET = "5" * 64

# Names that Python, our libraries or we ourselves import.
MODULES = (
    *("sitecustomize", "usercustomize", "json", "uvloop", "uvicorn", "structlog", "pydantic", "sqlalchemy", "mcp"),
    *("starlette", "argparse", "http", "typing", "encodings", "asyncio", "platformdirs", "tomllib", "secrets"),
    *("gsd_review_broker", "tests", "alembic"),
)


def plant_modules(folder: Path, canary: Path) -> Path:
    """Modules that leave their name in the canary when they are imported, and then fail."""
    for name in MODULES:
        code = f"open({str(canary)!r}, 'a').write('{name} was imported\\n')\nraise SystemExit('planted')\n"
        (folder / f"{name}.py").write_text(code)
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "__init__.py").write_text(code)
        (folder / name / "__main__.py").write_text(code)
    return canary


class Impostor(http.server.ThreadingHTTPServer):
    """Whoever listens on a port that a broker left: it answers everything, and remembers what it was sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.health: dict[str, Any] = {"status": "ok", "version": "1", "pid": 4711, "serves": "", "proof": "f" * 64}
        self.requests: list[tuple[str, dict[str, str]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Answers(http.server.BaseHTTPRequestHandler):
    server: Impostor

    def do_GET(self) -> None:
        self.server.requests.append((self.path, dict(self.headers.items())))
        body = json.dumps(self.server.health).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


def put_runtime_file(repository: Path, *, mode: int = 0o600, **values: Any) -> Path:
    path = repository / f"{DATABASE}.runtime.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"pid": os.getpid(), "secret": SECRET, **values}))
    path.chmod(mode)
    return path


@contextlib.contextmanager
def lock_held(repository: Path, pid: int) -> Generator[None]:
    path = lock_path(Database(repository / DATABASE))
    path.parent.mkdir(exist_ok=True)
    descriptor = locks.acquire(path)
    assert descriptor is not None
    os.write(descriptor, json.dumps({"pid": pid}).encode())
    yield
    os.close(descriptor)
