"""What GSD's agents have to do about reviews, from the settings and the gate's mode."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gsd_review_broker.cli.gate.setup import gate_state
from gsd_review_broker.git.checkout import find_root
from gsd_review_broker.settings import config
from gsd_review_broker.settings.problems import REVIEW
from gsd_review_broker.settings.schema import Settings

_FAIL_MODES = {
    "closed": "fail_mode closed: without a broker, commit nothing, and report that you are blocked.",
    "open": 'fail_mode open: without a broker, commit, and write "not reviewed" into SUMMARY.md.',
}
_SIZES = {
    "per_task": "per_task: propose each task by itself, before its commit.",
    "per_plan": "per_plan: do all tasks of the plan, stage them together, propose once, and commit once.",
}
_MODES = {
    "blocking": "blocking: wait for the verdict before you commit.",
    "optimistic": "optimistic: propose with --skip-diff-validation, commit with the trailer, go on, and run "
    "`tandem gsd check` before each task and at the end.",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    settings: Settings
    gate_mode: str
    """off, too, where no gate is installed."""
    plan_first: bool = False
    problems: tuple[str, ...] = ()

    @property
    def is_on(self) -> bool:
        return self.settings.review.enabled

    @property
    def execution_mode(self) -> str:
        """A gate that blocks takes no commit whose review is pending."""
        return "blocking" if self.gate_mode == "block" else self.settings.execution_mode

    @property
    def gates(self) -> dict[str, bool]:
        return self.settings.review.required_gates.model_dump()

    def facts(self) -> dict[str, Any]:
        return {
            "enabled": self.is_on,
            "fail_mode": self.settings.review.fail_mode,
            "required_gates": self.gates,
            "review_granularity": self.settings.review_granularity,
            "execution_mode": self.execution_mode,
            "gate_mode": self.gate_mode,
            "plan_first": self.plan_first,
            "problems": list(self.problems),
        }

    def lines(self) -> Iterator[str]:
        if self.is_on:
            needed = ", ".join(name for name, is_needed in self.gates.items() if is_needed) or "none"
            skipped = ", ".join(name for name, is_needed in self.gates.items() if not is_needed) or "none"
            yield f"review is on. Checkpoints that need an approval: {needed}. That need none: {skipped}."
            yield _SIZES[self.settings.review_granularity]
            yield _MODES[self.execution_mode]
            if self.execution_mode != self.settings.execution_mode:
                yield "(execution_mode is optimistic in the settings, but the gate is in mode block, so wait.)"
            yield _FAIL_MODES[self.settings.review.fail_mode]
        else:
            yield "review is off: propose nothing, and work as GSD says."
        yield _gate_line(self.gate_mode)
        if self.plan_first:
            yield "plan_first: code is not taken while a plan of the current phase is not approved as it is."
        for problem in self.problems:
            yield f"problem: {problem}"


def _gate_line(mode: str) -> str:
    match mode:
        case "block":
            return "The git gate refuses a commit that nobody approved."
        case "warn":
            return "The git gate only warns about a commit that nobody approved."
        case _:
            return "There is no git gate here."


def rules_here(folder: Path, *, config_file: str | None = None) -> Rules:
    loaded = config.load(root=find_root(folder), flags={"config": config_file})
    gate = gate_state(folder)
    return Rules(
        settings=loaded.settings,
        gate_mode=gate.mode if gate and gate.is_installed else "off",
        plan_first=gate is not None and gate.is_installed and gate.plan_first,
        problems=tuple(problem.message for problem in loaded.problems if problem.feature in REVIEW),
    )
