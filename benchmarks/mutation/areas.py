"""What is mutated, and which quick tests have to notice."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

_NO_ARITHMETIC = ("__init__.py", "spec.py")


@dataclass(frozen=True)
class Area:
    """sources: files and folders below platform/vsetune. tests: patterns below tests/, none of which starts Ray."""

    name: str
    sources: tuple[str, ...]
    tests: tuple[str, ...]

    def source_files(self, root: Path) -> list[Path]:
        """Relative to root, sorted. Specs of components are left out: they hold ranges and descriptions."""
        found: set[Path] = set()
        for source in self.sources:
            path = root / "platform" / "vsetune" / source
            found.update([path] if path.is_file() else path.rglob("*.py"))
        return sorted(file.relative_to(root) for file in found if file.name not in _NO_ARITHMETIC)

    def test_files(self, root: Path) -> list[Path]:
        """Relative to root, sorted."""
        found = {file for pattern in self.tests for file in (root / "tests").glob(pattern)}
        return sorted(file.relative_to(root) for file in found)


AREAS = {
    area.name: area
    for area in (
        Area("metrics", ("metrics",), ("metrics/**/test_*.py",)),
        Area(
            "losses", ("losses",),
            (
                "losses/**/test_*.py", "api/test_plain_losses.py", "api/test_losses_in_own_loops.py",
                "api/test_refused_arguments.py",
            ),
        ),
        Area(
            "ledger",
            (
                "study/ledger.py", "study/trials.py", "study/next_trial.py", "study/cell_search.py",
                "study/cell_objectives.py", "study/cell_budget.py", "study/confirmations.py",
                "study/cell_numbers.py",
            ),
            (
                "study/test_ledger*.py", "study/test_planned_trial*.py", "study/test_progress.py",
                "study/test_next_trial.py", "study/test_cell_objectives.py", "study/test_confirmations.py",
                "study/test_cell_budget.py", "study/test_study_metrics.py",
                "study/test_cells_that_cannot_draw.py", "study/test_equal_budgets.py",
            ),
        ),
        Area("search", ("search",), ("search/**/test_*.py", "config/test_conditional_settings.py")),
    )
}


def nearest_first(tests: list[Path], mutated: Path, root: Path) -> list[list[Path]]:
    """The tests in groups: those that import the mutated module itself, those that import its folder, the rest.

    Most mutants are killed by the first group, and the imports of the others are spared. One that survives has survived
    all of them.
    """
    parts = mutated.relative_to("platform").with_suffix("").parts
    modules = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]

    def distance(test: Path) -> int:
        text = (root / test).read_text(encoding="utf-8")
        named = 0 if mutated.stem in test.stem or mutated.parent.name in test.stem else 1
        return 2 * next((place for place, module in enumerate(modules) if module in text), len(modules)) + named

    return [list(group) for _, group in groupby(sorted(tests, key=distance), key=distance)]
