"""What a chaos run shows: a line per disturbance, two tables, and a JSON file with everything."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from chaos.comparison import Finding
from chaos.ends import Injury

_SHOWN = 12


@dataclass
class SweepResult:
    """How one sweep went. undisturbed_s: 0 where another sweep had run the same study undisturbed before.

    problems: of its rounds; findings: against the undisturbed one.
    """

    name: str
    trials: int
    rounds: int
    undisturbed_s: float
    disturbed_s: float
    problems: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def count(self, kind: str) -> int:
        return sum(finding.kind == kind for finding in self.findings)


class Report:
    """Collects injuries and results and shows them as they come."""

    def __init__(self, console: Console, path: Path, *, planned: int, seed: int) -> None:
        self._console, self._path = console, path
        self._planned, self._seed, self._began = planned, seed, time.monotonic()
        self.injuries: list[Injury] = []
        self.results: list[SweepResult] = []

    def say(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)

    def add(self, injury: Injury) -> None:
        """One line: what, when, how it ended, seconds."""
        self.injuries.append(injury)
        lasted = f" for {injury.lasted_s:.0f} s" if injury.lasted_s else ""
        line = Text(f"[{len(self.injuries):2d}/{self._planned}] {injury.sweep} {injury.struck_s:5.0f} s  ")
        line.append(f"{injury.kind}{lasted} ({injury.phase})", style="bold")
        line.append(f": {injury.outcome} after {injury.seconds:.1f} s")
        for problem in injury.problems:
            line.append(f"; {problem}", style="red")
        self._console.print(line, soft_wrap=True, highlight=False)

    def finish_sweep(self, result: SweepResult) -> None:
        self.results.append(result)
        findings = len(result.findings)
        self.say(
            f"{result.name}: {result.rounds} rounds, {result.disturbed_s:.0f} s, "
            f"{'equal to the undisturbed sweep' if not findings else f'{findings} differences'}"
        )
        for text in [*result.problems, *(finding.text for finding in result.findings)][:_SHOWN]:
            self._console.print(Text(f"  {text}", style="red"), soft_wrap=True)
        self.write()

    @property
    def is_good(self) -> bool:
        return len(self.injuries) == self._planned and not any(injury.problems for injury in self.injuries) and not any(
            result.problems or result.findings for result in self.results
        )

    def show(self) -> None:
        """The tables by kind of disturbance and by sweep, and the verdict."""
        self._console.print(self._by_kind())
        self._console.print(self._by_sweep())
        minutes = (time.monotonic() - self._began) / 60
        verdict = "all checks passed" if self.is_good else "some checks FAILED"
        self.say(f"{len(self.injuries)} of {self._planned} disturbances in {minutes:.1f} minutes: {verdict}")

    def write(self) -> None:
        """Everything as JSON, for looking into later."""
        plain: dict[str, Any] = {
            "seed": self._seed, "planned": self._planned, "is_good": self.is_good,
            "injuries": [asdict(injury) for injury in self.injuries],
            "sweeps": [asdict(result) for result in self.results],
        }
        self._path.write_text(json.dumps(plain, indent=2), encoding="utf-8")

    def _by_kind(self) -> Table:
        table = Table("disturbance", "count", "in time", "no innards", "driver ended", "other problems", "longest, s")
        for kind in sorted({injury.kind for injury in self.injuries}):
            of_kind = [injury for injury in self.injuries if injury.kind == kind]
            numbers = (
                len(of_kind), sum(injury.in_time for injury in of_kind), sum(injury.is_told for injury in of_kind),
                sum(injury.exit_code is not None for injury in of_kind),
                sum(bool(injury.problems) and injury.in_time and injury.is_told for injury in of_kind),
            )
            table.add_row(kind, *map(str, numbers), f"{max(injury.seconds for injury in of_kind):.1f}")
        return table

    def _by_sweep(self) -> Table:
        kinds = ("lost", "twice", "failed", "open", "different")
        table = Table("sweep", "trials", "disturbances", "rounds", *kinds, "problems", "seconds", "undisturbed")
        struck = Counter(injury.sweep for injury in self.injuries)
        for result in self.results:
            table.add_row(
                result.name, str(result.trials), str(struck[result.name]), str(result.rounds),
                *(str(result.count(kind)) for kind in kinds), str(len(result.problems)),
                f"{result.disturbed_s:.0f}", f"{result.undisturbed_s:.0f}",
            )
        return table
