"""A repository whose owner wants to harm the people who work in it."""

import contextlib
import http.server
import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

from gsd_review_broker.files import acquire_lock
from gsd_review_broker.settings.state_files import Database, lock_path
from tests.support.processes import DATABASE

SECRET = "5" * 64

# Names that Python, our libraries or we ourselves import.
MODULES = (
    *("sitecustomize", "usercustomize", "json", "uvloop", "uvicorn", "structlog", "pydantic", "sqlalchemy", "mcp"),
    *("starlette", "argparse", "http", "typing", "encodings", "asyncio", "tomllib", "secrets"),
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
    descriptor = acquire_lock(path)
    assert descriptor is not None
    os.write(descriptor, json.dumps({"pid": pid}).encode())
    yield
    os.close(descriptor)


# Settings of git that name a program; %s is its path.
PROGRAM_SETTINGS = {
    "core.fsmonitor": "%s",
    "core.pager": "%s",
    "core.editor": "%s",
    "core.askPass": "%s",
    "core.sshCommand": "%s",
    "core.gitProxy": "%s",
    "core.alternateRefsCommand": "%s",
    "credential.helper": "!%s",
    "gpg.program": "%s",
    "gpg.ssh.program": "%s",
    "log.showSignature": "true",
    "diff.external": "%s",
    "diff.evil.command": "%s",
    "diff.evil.textconv": "%s",
    "merge.evil.driver": "%s",
    "interactive.diffFilter": "%s",
    "pager.diff": "%s",
    "pager.log": "%s",
    "alias.worktree": "!%s",
    "alias.gate": "!%s",
    "remote.origin.url": "ext::%s",
    "remote.origin.promisor": "true",
    "uploadpack.packObjectsHook": "%s",
    "submodule.module.update": "!%s",
    "trailer.evil.command": "%s",
}
# These run when a file is taken from the work tree or written to it, which `git add` does on purpose.
FILTER_SETTINGS = {"filter.evil.clean": "%s", "filter.evil.smudge": "%s", "filter.evil.process": "%s"}
ATTRIBUTES = "* diff=evil merge=evil filter=evil ident export-subst\n"
MODULES_FILE = '[submodule "module"]\n\tpath = module\n\turl = ext::false\n\tignore = all\n\tupdate = !false\n'


def make_program(path: Path, canary: Path) -> Path:
    """A program that leaves its name in the canary, and fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\necho "{path.name} was run" >> {canary}\nexit 1\n')
    path.chmod(0o755)
    return path


def name_programs(repository: Path, programs: Path, canary: Path, settings: dict[str, str]) -> None:
    """Settings in `.git/config`, each with a program of its own."""
    for name, value in settings.items():
        program = make_program(programs / name.replace(".", "-"), canary)
        # The file itself is written, since git would obey the settings that are there already.
        section, _, key = name.rpartition(".")
        head, _, rest = section.partition(".")
        title = f'[{head} "{rest}"]' if rest else f"[{head}]"
        with (repository / ".git" / "config").open("a") as file:
            file.write(f'{title}\n\t{key} = "{value.replace("%s", str(program))}"\n')


def plant_hooks(repository: Path, canary: Path) -> None:
    folder = repository / "hooks-of-the-clone"
    for name in ("pre-commit", "post-index-change", "post-checkout", "reference-transaction", "fsmonitor-watchman"):
        make_program(folder / name, canary)
    with (repository / ".git" / "config").open("a") as file:
        file.write(f'[core]\n\thooksPath = "{folder}"\n')


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a folder, with its mode and content."""
    return {
        str(path.relative_to(folder)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
    }
