"""What a mutation run shows: a table per area, every survivor with its diff, and a JSON file with all mutants."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mutation.judged import Judgement
from mutation.mutants import Mutant
from mutation.testing import Examined

NEEDED = 0.9
"""Share of the mutants of every area that has to be killed."""


@dataclass(frozen=True)
class Result:
    """One mutant and how its tests went. judgement: only of a survivor that a person has judged."""

    area: str
    mutant: Mutant
    tested: Examined
    judgement: Judgement | None

    @property
    def is_killed(self) -> bool:
        """A test failed, or did not end: then the limit, a multiple of the usual time, is what noticed."""
        return self.tested.outcome != "survived"

    @property
    def is_equivalent(self) -> bool:
        return not self.is_killed and self.judgement is not None and self.judgement.verdict == "equivalent"


@dataclass(frozen=True)
class Shares:
    """Of one area. raw: killed among all. judged: killed among those that can be, equivalent mutants left out."""

    raw: float
    judged: float


def shares(results: Sequence[Result]) -> Shares:
    killed = sum(result.is_killed for result in results)
    possible = sum(not result.is_equivalent for result in results)
    return Shares(killed / max(1, len(results)), killed / max(1, possible))


class Report:
    """Collects results and shows them as they come."""

    def __init__(self, console: Console, path: Path, *, seed: int) -> None:
        self._console, self._path, self._seed = console, path, seed
        self.results: list[Result] = []

    def say(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)

    def add(self, result: Result) -> None:
        """One line, and the diff of a survivor."""
        self.results.append(result)
        mutant, tested = result.mutant, result.tested
        verdict = f", judged {result.judgement.verdict}" if result.judgement else ""
        line = Text(f"{result.area} {mutant.file.name}:{mutant.line} {mutant.function} ({mutant.kind}): ")
        line.append(f"{tested.outcome}{verdict}", style="" if result.is_killed else "bold red")
        line.append(f" after {tested.seconds:.1f} s")
        self._console.print(line, soft_wrap=True, highlight=False)
        if not result.is_killed:
            self.say(_indented(mutant.diff))

    def is_good(self) -> bool:
        """Whether every area has its share, equivalent mutants left out."""
        return all(shares(self._of(area)).judged >= NEEDED for area in self._areas())

    def show(self) -> None:
        """The table by area, then the survivors: first those that nobody has judged."""
        table = Table("area", "sampled", "killed", "timed out", "survived", "equivalent", "accepted", "raw", "judged")
        for area in self._areas():
            results = self._of(area)
            counts = [sum(result.tested.outcome == outcome for result in results) for outcome in (
                "killed", "timed out", "survived")]
            verdicts = [sum(result.judgement is not None and result.judgement.verdict == verdict for result in results)
                        for verdict in ("equivalent", "accepted")]
            share = shares(results)
            table.add_row(area, str(len(results)), *map(str, counts + verdicts), f"{share.raw:.1%}",
                          f"{share.judged:.1%}")
        self._console.print(table)
        survivors = [result for result in self.results if not result.is_killed]
        for result in sorted(survivors, key=lambda each: each.judgement is not None):
            verdict = f"{result.judgement.verdict}: {result.judgement.reason}" if result.judgement else "not judged"
            self.say(f"{result.mutant.file}:{result.mutant.line} {result.mutant.function}: {verdict}")
            self.say(_indented(result.mutant.diff))
        verdict = "enough were killed" if self.is_good() else f"less than {NEEDED:.0%} of an area were killed"
        self.say(f"{len(self.results)} mutants, seed {self._seed}: {verdict}; all of them in {self._path}")

    def write(self) -> None:
        """Everything as JSON, for looking into later."""
        plain = {
            "seed": self._seed, "needed": NEEDED, "is_good": self.is_good(),
            "areas": {area: vars(shares(self._of(area))) for area in self._areas()},
            "mutants": [
                {
                    "area": result.area, "file": result.mutant.file.as_posix(), "line": result.mutant.line,
                    "function": result.mutant.function, "kind": result.mutant.kind, "diff": result.mutant.diff,
                    **vars(result.tested), "judgement": vars(result.judgement) if result.judgement else None,
                }
                for result in self.results
            ],
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(plain, indent=2), encoding="utf-8")

    def _areas(self) -> list[str]:
        return list(dict.fromkeys(result.area for result in self.results))

    def _of(self, area: str) -> list[Result]:
        return [result for result in self.results if result.area == area]


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
