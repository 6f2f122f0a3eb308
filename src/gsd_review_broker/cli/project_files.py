"""What several commands write into a project: a section of its configuration file, and the gate's git hook."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from gsd_review_broker.domain.gate.policy import Mode, strictest
from gsd_review_broker.errors import BrokerError, Code
from gsd_review_broker.files import write_private
from gsd_review_broker.gate import install
from gsd_review_broker.gate.remote import remember_mode
from gsd_review_broker.git.discovery import exclude_from_git
from gsd_review_broker.settings import locations
from gsd_review_broker.settings.state_files import Database


def changed_setting(path: Path, section: str, values: dict[str, Any], *, personal: bool = False) -> bool:
    """Change a section of a configuration file; return False if the file already says so.

    A new and `personal` file of a project is kept out of git: it is about this machine, and a tracked file cannot
    loosen a setting, because it may have come with the repository."""
    settings = locations.read_settings_file(path, must_exist=False)
    present = settings.get(section, {})
    if not isinstance(present, dict):
        raise BrokerError(Code.CONFLICT, f"{path}: {section} is not an object", "Fix the file first.")
    wanted = {**cast("dict[str, Any]", present), **values}
    if wanted == present:
        return False
    if personal and path != locations.user_file() and not path.exists():
        exclude_from_git(path.parents[1], f"/{locations.PROJECT_FOLDER}/{locations.PROJECT_FILE}")
    _write(path, json.dumps({**settings, section: wanted}, indent=2) + "\n")
    return True


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    write_private(path, text.encode(), mode=mode)


@dataclass(frozen=True, kw_only=True, slots=True)
class GateState:
    state: str = "absent"
    """ok, absent, or damaged: git would not run the hook as it should be."""
    mode: str = Mode.OFF.value
    plan_first: bool = False

    @property
    def is_installed(self) -> bool:
        return self.state == "ok"


def gate_state(folder: Path) -> GateState:
    """Return the state of the repository's gate; outside a repository, it is absent."""
    try:
        site = install.GateSite.of(folder)
    except BrokerError:
        return GateState()
    policy = install.policy_of(site)
    return GateState(state=install.state(site), mode=policy.mode.value, plan_first=policy.plan_first)


def install_gate(
    folder: Path,
    *,
    database: Database | None = None,
    mode: str | None = None,
    url: str | None = None,
    there: Mode | None = None,
) -> dict[str, Any]:
    """Install the hook. `mode` is written into the project's file; without it, the file's mode applies, else warn.

    The hook asks the broker of `database` (by default the repository's own), or a broker on another machine: `url` is
    its address, and `there` its mode."""
    site = install.GateSite.of(folder)
    database = database or locations.locate(site.root, db=None, config=None).database
    user = locations.locate(None, db=None, config=None, environment={})
    if mode is not None:
        file = locations.project_file(site.root) if site.root else locations.user_file()
        changed_setting(file, "gate", {"mode": mode})
    is_new = install.install(site, database=database, user_database=user.database, url=url)
    present = install.policy_of(site).mode
    if there is not None:
        remember_mode(install.hook_site(site), there.value)
        present = strictest([present, there])
    result = {"installed": True, "changed": is_new, "mode": present.value, "hook": str(install.hook_file(site))}
    return result | ({"asks": url} if url else {})


def uninstall_gate(folder: Path) -> bool:
    """Return False if there was no hook. The mode in the project's file stays: it says what the project wants."""
    return install.uninstall(install.GateSite.of(folder))
