"""The measurements beside their bars: a table for people, JSON for programs."""

import json
import platform
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

_ROW = "{name:<46} {value:>10} {bar:>10}  {verdict:<5} {told}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One number and its bar; `told` shows what it is made of. Without a bar it only informs."""

    name: str
    value: float
    bar: float | None = None
    kind: Literal["at most", "at least"] = "at most"
    unit: str = ""
    told: str = ""
    details: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def passes(self) -> bool | None:
        if self.bar is None:
            return None
        return self.value <= self.bar if self.kind == "at most" else self.value >= self.bar


def ratio(name: str, measured: float, reference: float, bar: float | None, of: str, **details: Any) -> Figure:
    """Seconds over seconds."""
    made_of = f"{measured * 1000:.3f} ms ÷ {reference * 1000:.3f} ms ({of})"
    kept = {"measured_ms": measured * 1000, "reference_ms": reference * 1000, "reference": of, **details}
    return Figure(name=name, value=measured / reference, bar=bar, told=made_of, details=kept)


def _amount(value: float, unit: str) -> str:
    shown = f"{value:,.0f}" if unit and value >= 100 else f"{value:.2f}"
    return f"{shown} {unit}".strip()


def line(figure: Figure) -> str:
    sign = "≤" if figure.kind == "at most" else "≥"
    bar = "" if figure.bar is None else f"{sign} {figure.bar:,g}"
    verdict = {True: "pass", False: "MISS", None: ""}[figure.passes]
    value = _amount(figure.value, figure.unit)
    return _ROW.format(name=figure.name, value=value, bar=bar, verdict=verdict, told=figure.told).rstrip()


def heading() -> str:
    return _ROW.format(name="figure", value="measured", bar="bar", verdict="", told="made of").rstrip()


def write_json(path: Path, figures: Sequence[Figure], *, seconds: float) -> None:
    path.parent.mkdir(exist_ok=True)
    content = {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "machine": platform.platform(),
        "took_seconds": round(seconds, 1),
        "figures": [asdict(figure) | {"passes": figure.passes} for figure in figures],
    }
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
