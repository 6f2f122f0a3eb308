"""A home folder with clients' files in it, and everything that can be seen of it."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from gsd_review_broker.domain.words import Audience
from gsd_review_broker.integrations.clients import every_client
from gsd_review_broker.integrations.clients.setup import Choice, Client, Environment, Scope
from gsd_review_broker.integrations.planning import ClientPlan, Planner, carry_out

CLAUDE, CODEX, GEMINI, OPENCODE = every_client()
URL = "http://127.0.0.1:8321/mcp/proposer"


@dataclass(frozen=True)
class Account:
    around: Environment

    @classmethod
    def in_folder(cls, folder: Path) -> "Account":
        home, root = folder / "account", folder / "project"
        home.mkdir()
        root.mkdir()
        state = folder / "state"
        return cls(Environment(home=home, variables={"PATH": os.environ["PATH"]}, root=root, state=state))

    @property
    def root(self) -> Path:
        assert self.around.root is not None
        return self.around.root

    def document(self, client: Client, scope: Scope) -> Path:
        assert client.server is not None
        return client.server(Choice(url=None, scope=scope), self.around).path

    def install(
        self,
        client: Client = CLAUDE,
        scope: Scope = Scope.PROJECT,
        *,
        url: str | None = URL,
        role: Audience = Audience.PROPOSER,
        trust: bool = False,
        shared: bool = False,
        dry_run: bool = False,
    ) -> ClientPlan:
        choice = Choice(url=url, role=role, scope=scope, trust=trust, shared=shared)
        plan = Planner(self.around).install(client, choice)
        return plan if dry_run else carry_out(plan)

    def uninstall(self, client: Client = CLAUDE, scope: Scope = Scope.PROJECT, *, dry_run: bool = False) -> ClientPlan:
        plan = Planner(self.around).uninstall(client, scope)
        return plan if dry_run else carry_out(plan)

    def seen(self) -> dict[str, tuple[int, bytes | str | None]]:
        """Every file, folder and link outside our own state: its mode and content."""
        folder = self.around.home.parent
        return {
            str(path.relative_to(folder)): (stat.S_IMODE(path.lstat().st_mode), _content(path))
            for base in (self.around.home, self.root)
            for path in sorted(base.rglob("*"))
        }

    def receipts(self) -> list[Path]:
        return sorted(self.around.state.glob("*.json"))


def _content(path: Path) -> bytes | str | None:
    if path.is_symlink():
        return str(path.readlink())
    return path.read_bytes() if path.is_file() else None


def put(path: Path, content: bytes | str, *, mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(mode)
    return path
