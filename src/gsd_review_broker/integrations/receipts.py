"""Records what was done to a client's files, so that it can be undone: one small file for each client and place.

It is written before the files are, and lists every state that they may be in. After a process was killed halfway,
`uninstall` can still undo everything.
"""

import hashlib
import os
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.files import locks
from gsd_review_broker.files.private import make_private_folder
from gsd_review_broker.integrations import files
from gsd_review_broker.integrations.formats.edits import Edit
from gsd_review_broker.integrations.formats.entries import Entry, Placed


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PlacedRecord(_Record):
    path: tuple[str, ...]
    value: Any
    in_list: bool
    prior: str | None
    existing: int
    is_default: bool = False

    @classmethod
    def of(cls, placed: Placed) -> "PlacedRecord":
        entry = placed.entry
        return cls(
            path=entry.path,
            value=entry.value,
            in_list=entry.in_list,
            is_default=entry.is_default,
            prior=placed.prior,
            existing=placed.existing,
        )

    @property
    def entry(self) -> Entry:
        return Entry(path=self.path, value=self.value, in_list=self.in_list, is_default=self.is_default)

    @property
    def placed(self) -> Placed:
        return Placed(entry=self.entry, edits=(), prior=self.prior, existing=self.existing)


class ReceiptStep(_Record):
    edits: tuple[tuple[int, int, str], ...]

    @classmethod
    def of(cls, edits: tuple[Edit, ...]) -> "ReceiptStep":
        return cls(edits=tuple((edit.start, edit.end, edit.text) for edit in edits))

    def as_edits(self) -> tuple[Edit, ...]:
        return tuple(Edit(*parts) for parts in self.edits)


class DocumentRecord(_Record):
    """A configuration file with entries of ours in it."""

    kind: Literal["document"] = "document"
    path: str
    format: Literal["json", "toml"]
    created: bool
    start: str
    """What it began with, if we made it."""
    entries: tuple[PlacedRecord, ...]
    states: dict[str, tuple[ReceiptStep, ...]]
    """By the digest of a content that we wrote: the steps from there back to what was before us."""

    @property
    def is_new(self) -> bool:
        """Was there no such file before us?"""
        return self.created


class AssetRecord(_Record):
    """A whole file of ours."""

    kind: Literal["asset"] = "asset"
    path: str
    digests: tuple[str, ...]
    prior: str | None
    """What a foreign file in its place said."""

    @property
    def is_new(self) -> bool:
        return self.prior is None


class Receipt(_Record):
    version: Literal[1] = 1
    client: str
    scope: Literal["project", "user"]
    root: str | None
    address: str
    role: str
    files: tuple[DocumentRecord | AssetRecord, ...] = Field(default=())
    folders: tuple[str, ...] = ()
    exclude: str | None = None
    """The repository's exclude file, in which the files that we created are listed."""
    excluded: tuple[str, ...] = ()
    shared: bool = False
    """The other files are to be committed."""
    trust: bool = False
    gate: bool = False
    runtimes: tuple[str, ...] = ()

    def document(self, path: Path) -> DocumentRecord | None:
        return next((r for r in self.files if isinstance(r, DocumentRecord) and r.path == str(path)), None)

    def asset(self, path: Path) -> AssetRecord | None:
        return next((r for r in self.files if isinstance(r, AssetRecord) and r.path == str(path)), None)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Receipts:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, client: str, root: Path | None) -> Path:
        if root is None:
            return self._folder / f"{client}-user.json"
        return self._folder / f"{client}-project-{digest(os.fsencode(root))[:16]}.json"

    def read(self, client: str, root: Path | None) -> Receipt | None:
        return self._read(self.path(client, root))

    def projects(self) -> list[Receipt]:
        """The receipts of every project; unreadable ones are skipped."""
        receipts: list[Receipt] = []
        for path in sorted(self._folder.glob("*-project-*.json")):
            with suppress(BrokerError):
                receipt = self._read(path)
                receipts += [receipt] if receipt else []
        return receipts

    def beside(self, receipt: Receipt) -> list[Receipt]:
        """All other receipts, of which some may name the same files; unreadable ones are skipped."""
        others: list[Receipt] = []
        for path in sorted(self._folder.glob("*.json")):
            with suppress(BrokerError):
                other = self._read(path)
                is_other = other is not None and (other.root, other.client) != (receipt.root, receipt.client)
                others += [other] if other and is_other else []
        return others

    def _read(self, path: Path) -> Receipt | None:
        content = files.read(path).content
        if content is None:
            return None
        try:
            return Receipt.model_validate_json(content)
        except ValidationError as error:
            raise BrokerError(
                Code.CONFLICT,
                f"the receipt {path} is damaged or of another version",
                "Move it away; tandem then leaves the files that it lists alone.",
            ) from error

    def write(self, receipt: Receipt) -> None:
        path = self.path(receipt.client, Path(receipt.root) if receipt.root is not None else None)
        content = receipt.model_dump_json(indent=1).encode()
        snapshot = files.read(path)
        if snapshot.content != content:
            files.write(snapshot, content, new_mode=0o600)

    def remove(self, receipt: Receipt) -> None:
        self.path(receipt.client, Path(receipt.root) if receipt.root is not None else None).unlink(missing_ok=True)

    @contextmanager
    def alone(self) -> Generator[None]:
        """One installation at a time on this account."""
        with ExitStack() as stack:
            with files.explained(self._folder):
                make_private_folder(self._folder)
                stack.enter_context(locks.held(self._folder / "lock"))
            yield
