"""Putting the gate in place, and its state: for `tandem gate`, for `tandem setup` and for `tandem status`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gsd_review_broker.cli.settings_file import changed_setting
from gsd_review_broker.domain.gate.policy import Mode, strictest
from gsd_review_broker.errors import BrokerError
from gsd_review_broker.gate import install
from gsd_review_broker.gate.remote import remember_mode
from gsd_review_broker.settings import locations
from gsd_review_broker.settings.state_files import Database


@dataclass(frozen=True, kw_only=True, slots=True)
class GateState:
    """`state` is ok, absent, or damaged: git would not run the hook as it should be."""

    state: str
    mode: str
    hook: Path
    problem: str | None
    plan_first: bool = False

    @property
    def is_installed(self) -> bool:
        return self.state == "ok"


def gate_state(folder: Path) -> GateState | None:
    """None outside a repository."""
    try:
        site = install.GateSite.of(folder)
    except BrokerError:
        return None
    policy = install.policy_of(site)
    return GateState(
        state=install.state(site),
        mode=policy.mode.value,
        hook=install.hook_file(site),
        problem=policy.problem,
        plan_first=policy.plan_first,
    )


def install_gate(
    folder: Path,
    *,
    database: Database | None = None,
    mode: str | None = None,
    url: str | None = None,
    there: Mode | None = None,
) -> dict[str, Any]:
    """`mode` is written into the project's file; without one, what is written there counts, else warn. `database` is
    that of the broker to ask; the repository's own by default. `url` is that of a broker on another machine instead,
    and `there` its mode."""
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
    """False if there was none. The mode in the project's file stays: it says what the project wants."""
    return install.uninstall(install.GateSite.of(folder))
