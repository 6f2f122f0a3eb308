"""Capabilities of gsd-core: Tandem's gates and instructions in GSD's loop, and a lane for its `/gsd:review`.

GSD keeps a capability as a folder with a manifest, an entry in the project's ledger, and the user's consent, which is
bound to the content of the folder. `gsd-tools capability install` writes these three. We write the same: so the receipt
can take them back to the byte, and no program of the project has to run for it.
"""

import base64
import hashlib
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from gsd_review_broker.errors import BrokerError
from gsd_review_broker.integrations import files
from gsd_review_broker.integrations.clients.setup import ClientFile, ClientSetup, Environment
from gsd_review_broker.integrations.formats import ConfigEntry

LOOP, LANE = "tandem", "tandem-reviewer"
_VERSION = "1.0.0"
_MANIFEST = "capability.json"
_ENGINES = {"gsd": ">=1.14.0"}
# GSD stops the lane then, and the lane itself stops a little earlier.
LANE_MILLISECONDS = 1_200_000
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_./+:@%-]+")
_GATES = {"plan:post": "plan", "execute:wave:post": "execute", "verify:pre": "verify", "ship:pre": "verify"}
_BEFORE = (
    "Another agent or a person reviews before anything lands. Read {skill} and follow it; `tandem gsd rules` shows the "
    "rules."
)
# Where, for whom, and what.
_PLANNER = (
    "Propose each PLAN.md (`tandem propose --path FILE`) and wait for its approval before it is committed. Planning "
    "does not end while a plan is not approved."
)
_CHECKER = "Open findings in the review of a plan (`tandem list`, `tandem show ID`) are issues."
_EXECUTOR = (
    "Propose what you staged (`tandem propose --staged`) and wait for its approval before each commit. A wave does not "
    "end while a commit has no approval."
)
_VERIFIER = "Propose VERIFICATION.md and UAT.md (`tandem propose --path FILE`) before they are committed."
_TEXTS = (
    ("plan:pre", "planner", _PLANNER),
    ("plan:pre", "checker", _CHECKER),
    ("execute:wave:pre", "executor", _EXECUTOR),
    ("verify:pre", "orchestrator", _VERIFIER),
)


def capability_setup(tandem: str, skill: str, around: Environment) -> ClientSetup:
    """Return the files of a project. `skill` is where its agents read our skill."""
    root = around.project()
    manifests = {LOOP: _text(_loop(tandem, skill)), LANE: _text(_lane(tandem))}
    assets = tuple(
        ClientFile(path=_folder(root, name) / _MANIFEST, text=text, personal=True) for name, text in manifests.items()
    )
    return ClientSetup(documents=(_ledger(root), _consents(root, tandem, manifests, around)), assets=assets)


def _folder(root: Path, name: str) -> Path:
    return root / ".gsd" / "capabilities" / name


def _text(manifest: dict[str, Any]) -> str:
    return json.dumps(manifest, indent=2) + "\n"


def _loop(tandem: str, skill: str) -> dict[str, Any]:
    contributions: list[dict[str, Any]] = [
        {
            "point": point, "into": role, "fragment": {"inline": f"{_BEFORE.format(skill=skill)} {text}"},
            "produces": [], "consumes": [], "onError": "skip",
        }
        for point, role, text in _TEXTS
    ]  # fmt: skip
    gates = [
        {
            "point": point, "blocking": True, "onError": "halt",
            "check": {"predicate": {"kind": "command-exit-zero", "command": _command(tandem, checkpoint)}},
        }
        for point, checkpoint in _GATES.items()
    ]  # fmt: skip
    return {
        "id": LOOP, "role": "feature", "version": _VERSION, "title": "Tandem: review before it lands",
        "description": "Stops a phase while its plans or commits have no approval, and tells agents how to get one.",
        "tier": "core", "requires": [], "engines": _ENGINES,
        "runtimeCompat": {"supported": ["*"], "unsupported": []},
        "skills": [], "agents": [], "hooks": [], "config": {}, "steps": [],
        "contributions": contributions, "gates": gates,
    }  # fmt: skip


def _command(tandem: str, checkpoint: str) -> str:
    """Return a command for `sh -c`, without single quotes: GSD's workflow puts it between them."""
    program = tandem if _PLAIN_WORD.fullmatch(tandem) else '"' + re.sub(r'([\\"$`])', r"\\\1", tandem) + '"'
    return f"{program} gsd checkpoint {checkpoint}"


def _lane(tandem: str) -> dict[str, Any]:
    return {
        "id": LANE, "role": "reviewer", "version": _VERSION, "title": "Tandem's reviewers",
        "description": "/gsd:review --tandem: a reviewer, an agent or a person, reads the plans.",
        "tier": "core", "requires": [], "engines": _ENGINES,
        "reviewer": {
            "slug": "tandem", "flags": ["--tandem"], "transport": "spawn",
            "probe": {"kind": "command-exists", "binary": tandem},
            "invoke": {
                "binary": tandem, "args": ["gsd", "review"], "promptChannel": "stdin", "outputChannel": "stdout",
                "modelArg": None, "effortChannel": "none",
            },
            "timeoutFloorMs": LANE_MILLISECONDS, "emptyOutput": "stub-with-stderr", "reviewsSection": "Tandem",
            "evidenceClass": "source-grounded", "requiresBinaries": [], "promptBudgetKey": None, "handler": None,
        },
    }  # fmt: skip


def _ledger(root: Path) -> ClientFile:
    entries = tuple(
        ConfigEntry(
            path=("entries", name),
            value={
                "id": name, "version": _VERSION, "source": "tandem install gsd", "integrity": "",
                "files": [_folder(Path(), name).as_posix()], "sharedEdits": [],
            },
        )
        for name in (LOOP, LANE)
    )  # fmt: skip
    start = '{\n  "version": "1",\n  "updatedAt": "1970-01-01T00:00:00.000Z",\n  "entries": {}\n}\n'
    return ClientFile(path=root / ".gsd-capabilities.json", entries=entries, start=start, personal=True)


def _consents(root: Path, tandem: str, manifests: dict[str, str], around: Environment) -> ClientFile:
    """Return this account's file: a repository must not consent for its user."""
    path = around.folder("GSD_HOME") / ".gsd" / "consent.json"
    entries = tuple(
        ConfigEntry(
            path=("records", _key(root, name)),
            value={
                "projectRoot": str(root), "id": name, "scope": "project", "integrity": "",
                "disclosureSignature": _disclosed(tandem) if name == LANE else "[[],[],[]]",
                "contentHash": content_hash(text),
                "consentedAt": _consented_at(path, _key(root, name), content_hash(text)),
            },
        )
        for name, text in manifests.items()
    )  # fmt: skip
    start = '{\n  "version": "1",\n  "records": {}\n}\n'
    return ClientFile(path=path, entries=entries, start=start)


def _key(root: Path, name: str) -> str:
    return _compact({"r": str(root), "i": name})


def content_hash(manifest: str) -> str:
    """GSD's sum over a folder that holds a manifest alone: the number of entries, then for each of them its kind, its
    name and its content, the last two with their lengths."""
    name, content = _MANIFEST.encode(), manifest.encode()
    framed = b"".join(
        (
            (1).to_bytes(8, "big"), b"\x01", len(name).to_bytes(4, "big"), name,
            len(content).to_bytes(8, "big"), content,
        )
    )  # fmt: skip
    return "sha512-" + base64.b64encode(hashlib.sha512(framed).digest()).decode("ascii")


def _disclosed(tandem: str) -> str:
    """Return what GSD shows before it asks: the program of the lane. GSD asks again when this changes."""
    body = _lane(tandem)["reviewer"]
    invoke = body["invoke"]
    names = ("emptyOutput", "evidenceClass", "flags", "probe", "promptBudgetKey", "requiresBinaries")
    more = {
        "defaultHost": "",
        "env": {},
        "laneResidual": {name: body[name] for name in names},
        "residual": {name: invoke[name] for name in ("effortChannel", "modelArg", "outputChannel")},
    }
    lane = ["lane", "tandem", "spawn", tandem, invoke["args"], "", invoke["promptChannel"], "", more]
    return _compact([[], [], [], [json.dumps(lane, sort_keys=True, ensure_ascii=False, separators=(",", ":"))]])


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _consented_at(path: Path, key: str, content: str) -> str:
    """Return when the user first installed exactly this content."""
    try:
        store = json.loads((files.read(path).content or b"{}").decode("utf-8-sig"))
        record = cast("dict[str, Any]", store["records"][key])
        if record["contentHash"] == content:
            return str(record["consentedAt"])
    except (BrokerError, ValueError, LookupError, TypeError):
        pass
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
