"""The real packages of GSD, as `make test-gsd` has fetched them: installed, updated and called as users do."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.accounts import put
from tests.support.gsd import CONFIG
from tests.support.processes import free_environment, git

PACKAGES = Path(os.environ.get("TANDEM_GSD", "/nowhere"))


@dataclass(frozen=True)
class Package:
    name: str
    node: str
    folder: str
    """Below the client's own folder."""

    @property
    def is_here(self) -> bool:
        return (PACKAGES / self.name).is_dir()

    @property
    def version(self) -> str:
        return self.name.partition("-")[2]

    @property
    def line(self) -> str:
        return "@opengsd/gsd-core" if self.folder == "gsd-core" else "get-shit-done-cc"


OLD = Package("classic-1.32.0", "22", "get-shit-done")
CLASSIC = Package("classic-1.42.3", "22", "get-shit-done")
CORE = Package("core-1.14.0", "24", "gsd-core")
ALL = (OLD, CLASSIC, CORE)


@dataclass(frozen=True)
class Machine:
    """A project and a home folder."""

    project: Path
    home: Path

    def node(self, package: Package, *words: str, folder: Path | None = None) -> str:
        """Through a pipe: redirected to a file, GSD's tools print nothing."""
        program = PACKAGES / f"node-{package.node}" / "node_modules" / "node" / "bin" / "node"
        done = subprocess.run(
            [str(program), *words], cwd=folder or self.project, env=free_environment(self.home),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout

    def install(self, package: Package, runtime: str, scope: str, *more: str) -> None:
        installer = PACKAGES / package.name / "bin" / "install.js"
        self.node(package, str(installer), f"--{runtime}", f"--{scope}", *more)

    def tools(self, package: Package, runtime: str, scope: str, *words: str, folder: Path | None = None) -> str:
        base = self.project if scope == "local" else self.home
        program = base / f".{runtime}" / package.folder / "bin" / "gsd-tools.cjs"
        return self.node(package, str(program), *words, folder=folder)

    def commit(self, package: Package, message: str, *words: str, folder: Path | None = None) -> dict[str, Any]:
        """GSD's own commit wrapper. It exits with 0, whatever became of the commit."""
        return json.loads(self.tools(package, "claude", "local", "commit", message, *words, folder=folder))

    def prepare(self, package: Package, runtime: str = "claude") -> None:
        """A project of GSD's with a first commit of it. GSD's own files and the broker's stay out of git."""
        self.install(package, runtime, "local")
        put(self.project / ".planning" / "config.json", CONFIG)
        put(self.project / ".gitignore", f".{runtime}/\n.planning/codex_review_broker*\n")
        git(self.project, "add", ".")
        git(self.project, "commit", "-qm", "GSD")

    def files(self) -> dict[str, bytes | None]:
        """Everything but git's own, our own state and npm's logs."""
        skipped = (self.project / ".git", self.home / ".local", self.home / ".config", self.home / ".npm")
        return {
            str(path): path.read_bytes() if path.is_file() else None
            for base in (self.project, self.home)
            for path in sorted(base.rglob("*"))
            if not any(path.is_relative_to(folder) for folder in skipped)
        }
