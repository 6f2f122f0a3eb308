"""Doing what a plan says: the clients' files, the gate, the broker; then the checks of the doctor."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gsd_review_broker import integrations
from gsd_review_broker.cli.broker import background
from gsd_review_broker.cli.doctor.check import Check, CheckState
from gsd_review_broker.cli.doctor.checks import every_check
from gsd_review_broker.cli.gate.setup import install_gate
from gsd_review_broker.cli.setup.plan import SetupPlan
from gsd_review_broker.cli.setup.report import next_steps
from gsd_review_broker.client import Target
from gsd_review_broker.settings import locations


@dataclass(frozen=True, kw_only=True, slots=True)
class SetupResult:
    url: str
    is_new: bool
    """The broker was started now."""
    checks: tuple[Check, ...]
    notes: tuple[str, ...]

    @property
    def is_well(self) -> bool:
        return all(check.state is not CheckState.RED for check in self.checks)


def carry_out(plan: SetupPlan) -> SetupResult:
    """The files first: a broker that is started now already has the pool's settings."""
    done = [integrations.carry_out(client) for client in plan.clients]
    target = Target.of(Path.cwd(), environment=None)
    target = Target(locations=target.locations, is_explicit=target.is_explicit)
    if plan.changes_gate:
        install_gate(plan.around.project(), database=target.locations.database)
    _, origin = locations.setting("port", target.locations.root, flag=None, config=None)
    started = background.start(target, port_is_free=origin == "default")
    started.broker.connection.close()
    return SetupResult(
        url=started.broker.connection.url,
        is_new=started.is_new,
        checks=tuple(every_check(target, None)),
        notes=tuple(dict.fromkeys(note for client in done for note in client.notes)),
    )


def planned_facts(plan: SetupPlan) -> dict[str, Any]:
    return {
        "project": str(plan.around.root),
        "changed": plan.is_change,
        "clients": [{"client": status.client.name, "program": str(status.program)} for status in plan.found],
        "gsd": [
            {"line": one.line.value, "version": one.version, "runtime": one.runtime, "folder": str(one.folder)}
            for one in plan.gsd
        ],
        "pairs": [{"proposer": pair.proposer, "reviewer": pair.reviewer} for pair in plan.pairs],
        "proposer": plan.pair.proposer,
        "reviewer": plan.pair.reviewer,
        "leaving": [client.name for client in plan.leaving],
        "files": [{"path": str(path), "action": action} for path, action in plan.files.items()],
        "gate": {"state": plan.gate.state, "mode": plan.gate.mode, "wanted": plan.wants_gate},
        "next": [{key: step[key] for key in ("client", "role", "type")} for step in next_steps(plan)],
    }
