"""Records what was done to a client's files, so that it can be undone: one small file for each client and place.

A receipt keeps what each file said before us. It is written before the files are, and knows every content that we may
have written. After a process was killed halfway, `uninstall` can still undo everything.
"""

import hashlib
import json
import os
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.files import locked, make_private_folder
from gsd_review_broker.integrations import files
from gsd_review_broker.integrations.formats import FORMATS, Language
from gsd_review_broker.integrations.formats.entries import (
    ConfigEntry,
    Edit,
    InvalidConfigError,
    PlacedEntry,
    UnfitError,
    applied,
)


class FileRecord(BaseModel):
    """One file that we wrote: whole, or some entries of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str
    created: bool
    """An installation of ours made the file."""
    former: str | None
    """What it said before us; None if there was no such file."""
    digests: tuple[str, ...]
    """Of the contents that we wrote. From each of them, `former` is the way back."""
    format: Language | None = None
    """None: the whole file is ours."""
    start: str = ""
    """What it began with, if we made it."""
    entries: tuple[ConfigEntry, ...] = ()

    def placed(self) -> list[PlacedEntry]:
        """How each entry was put into the former content."""
        form = FORMATS[self.format or "json"]
        text = self.start if self.former is None else self.former
        placed: list[PlacedEntry] = []
        for entry in self.entries:
            placed.append(form.put(text, entry))
            text = applied(text, placed[-1].edits)
        return placed


class InstallReceipt(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[2] = 2
    client: str
    scope: Literal["project", "user"]
    root: str | None
    address: str
    role: str
    files: tuple[FileRecord, ...] = ()
    folders: tuple[str, ...] = ()
    exclude: str | None = None
    """The repository's exclude file, in which the files that we created are listed."""
    excluded: tuple[str, ...] = ()
    shared: bool = False
    """The other files are to be committed."""
    trust: bool = False
    gate: bool = False
    runtimes: tuple[str, ...] = ()

    def record(self, path: Path) -> FileRecord | None:
        return next((record for record in self.files if record.path == str(path)), None)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class InstallReceipts:
    """The receipts on disk, or as planned installations will leave them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._planned: dict[Path, InstallReceipt | None] = {}

    def path(self, client: str, root: Path | None) -> Path:
        if root is None:
            return self._folder / f"{client}-user.json"
        return self._folder / f"{client}-project-{digest(os.fsencode(root))[:16]}.json"

    def plan(self, client: str, root: Path | None, receipt: InstallReceipt | None) -> None:
        self._planned[self.path(client, root)] = receipt

    def read(self, client: str, root: Path | None) -> InstallReceipt | None:
        return self._read(self.path(client, root))

    def projects(self) -> list[InstallReceipt]:
        """The receipts of every project; unreadable ones are skipped."""
        return [receipt for receipt in self._every() if receipt.root is not None]

    def beside(self, receipt: InstallReceipt) -> list[InstallReceipt]:
        """All other receipts, of which some may name the same files; unreadable ones are skipped."""
        own = receipt.root, receipt.client
        return [other for other in self._every() if (other.root, other.client) != own]

    def _every(self) -> list[InstallReceipt]:
        receipts: list[InstallReceipt] = []
        for path in sorted({*self._folder.glob("*.json"), *self._planned}):
            with suppress(BrokerError):
                receipt = self._read(path)
                receipts += [receipt] if receipt else []
        return receipts

    def _read(self, path: Path) -> InstallReceipt | None:
        if path in self._planned:
            return self._planned[path]
        content = files.read(path).content
        if content is None:
            return None
        try:
            values = json.loads(content)
            if values["version"] == 1:
                values = _of_version_1(values)
            return InstallReceipt.model_validate_json(json.dumps(values))
        except (ValidationError, ValueError, LookupError, TypeError) as error:
            raise BrokerError(
                Code.CONFLICT,
                f"the receipt {path} is damaged or of another version",
                "Move it away; tandem then leaves the files that it lists alone.",
            ) from error

    def write(self, receipt: InstallReceipt) -> None:
        content = receipt.model_dump_json(indent=1).encode()
        snapshot = files.read(self._path_of(receipt))
        if snapshot.content != content:
            files.write(snapshot, content, new_mode=0o600)

    def remove(self, receipt: InstallReceipt) -> None:
        self._path_of(receipt).unlink(missing_ok=True)

    def _path_of(self, receipt: InstallReceipt) -> Path:
        return self.path(receipt.client, Path(receipt.root) if receipt.root is not None else None)

    @contextmanager
    def alone(self) -> Generator[None]:
        """One installation at a time on this account."""
        with ExitStack() as stack:
            with files.explained(self._folder):
                make_private_folder(self._folder)
                stack.enter_context(locked(self._folder / "lock"))
            yield


def _of_version_1(values: dict[str, Any]) -> dict[str, Any]:
    """The first form kept the edits that lead back, and not the former content, which is computed here."""
    return values | {"version": 2, "files": [_record_of_version_1(record) for record in values["files"]]}


def _record_of_version_1(record: dict[str, Any]) -> dict[str, Any]:
    if record["kind"] == "asset":
        prior = record["prior"]
        return {"path": record["path"], "created": prior is None, "former": prior, "digests": record["digests"]}
    names = ("path", "created", "format", "start")
    keys = ("path", "value", "in_list", "is_default")
    entries = [{key: entry[key] for key in keys} for entry in record["entries"]]
    now = files.read(Path(record["path"])).content
    former = None if now is None else _former_of_version_1(now.decode("utf-8"), record)
    if record["created"] and former == record["start"]:
        former = None
    digests = [digest(now)] if now is not None else []
    return {name: record[name] for name in names} | {"entries": entries, "former": former, "digests": digests}


def _former_of_version_1(text: str, record: dict[str, Any]) -> str:
    steps = record["states"].get(digest(text.encode()))
    if steps is not None:
        for step in steps:
            text = applied(text, [Edit(*parts) for parts in step["edits"]])
        return text
    form = FORMATS[record["format"]]
    try:
        for one in reversed(record["entries"]):
            entry = ConfigEntry(path=tuple(one["path"]), value=one["value"], in_list=one["in_list"])
            placed = PlacedEntry(entry=entry, edits=(), prior=one["prior"], existing=one["existing"])
            text = applied(text, form.take(text, placed))
    except (InvalidConfigError, UnfitError):
        # `uninstall` names what is wrong with the file.
        return text
    return text
