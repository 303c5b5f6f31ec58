"""Cells of a study whose plugins have changed since it began: which of them may run with the loaded code.

A cell runs with one version of its code. Once a trial of the cell has begun, its attempts record the version (`plugins`
of the resolved trial). Before that the cell may begin with any version, if the user who resumes the study asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vsetune.config.study.cells import Cell
from vsetune.config.study.loss_settings import plugins_in
from vsetune.errors import Problem, StudyConflict
from vsetune.records.events import AttemptRecord
from vsetune.report.selection import Trial, budget_of_search, code_of, code_words, costs_of, trials_of
from vsetune.study.cell_goals import target_cell
from vsetune.study.kept_plugins import PLUGINS_FOLDER
from vsetune.study.preparation import PreparedStudy


@dataclass(frozen=True)
class RefusedCell:
    """A cell that must not continue with the loaded code. is_whole: no trial is left to run. reason: in one line."""

    cell: str
    is_whole: bool
    reason: str


def refused_cells(prepared: PreparedStudy, attempts: Sequence[AttemptRecord]) -> list[RefusedCell]:
    """The cells that have begun with other code, and the cells whose target would come from one of them.

    attempts: all attempts of the study.
    """
    begun: dict[str, list[Trial]] = {}
    for trial in trials_of(attempts):
        begun.setdefault(trial[-1].start.cell, []).append(trial)
    found = {}
    for cell in prepared.cells:
        trials = begun.get(cell.name, [])
        now, then = plugins_in(cell.network, cell.loss), code_of(trials)
        changed = {key: then[key] for key in sorted(now.keys() & then.keys()) if then[key] != now[key]}
        if changed:
            is_whole = _is_whole(cell, trials)
            found[cell.name] = RefusedCell(cell.name, is_whole, _why(cell, changed, now, prepared.folder, is_whole))
    names = [cell.name for cell in prepared.cells]
    waiting = [
        (cell.name, baseline) for cell in prepared.cells
        if cell.name not in found and (baseline := target_cell(prepared.spec, cell, names)) in found
    ]
    return [*found.values(), *(
        RefusedCell(name, False, Problem.of(
            "VSE-S009", "cell {cell}: its target is the best of {baseline}, which has begun with other code; put that "
            "code back, or give the study another name", cell=name, baseline=baseline,
        ))
        for name, baseline in waiting
    )]


def not_begun(prepared: PreparedStudy, attempts: Sequence[AttemptRecord]) -> list[str]:
    """The cells that use plugins and have no begun trial."""
    begun = {trial[-1].start.cell for trial in trials_of(attempts) if code_of([trial])}
    return [cell.name for cell in prepared.cells if plugins_in(cell.network, cell.loss) and cell.name not in begun]


def require_own_code(study: str, refused: Sequence[RefusedCell], *, cells: int) -> None:
    """StudyConflict if cells are refused and the user has not asked to leave them as they are, or no other is left.

    cells: number of cells of the study; 0 if the user has not asked.
    """
    if refused and len(refused) >= cells:
        hint = "" if cells else "; --changed-plugins goes on with the other cells"
        raise StudyConflict(
            "VSE-S010", "study {study}: {cells}{hint}", study=study, cells="; ".join(each.reason for each in refused),
            hint=hint,
        )


def _why(cell: Cell, changed: Mapping[str, str], now: Mapping[str, str], study_folder: Path, is_whole: bool) -> str:
    words = ", ".join(f"{code_words(key, sha256)} (loaded: {now[key][:12]})" for key, sha256 in changed.items())
    copies = [
        str(next((study_folder / PLUGINS_FOLDER).glob(f"[!.]*-{sha256[:12]}"), study_folder / PLUGINS_FOLDER))
        for sha256 in changed.values()
    ]
    if is_whole:
        return Problem.of("VSE-S008", "cell {cell}: has run with {code} and stays as it is", cell=cell.name, code=words)
    return Problem.of(
        "VSE-S007", "cell {cell}: has begun with {code}; to finish it put that code back ({copies}), or give the study "
        "another name", cell=cell.name, code=words, copies=", ".join(copies),
    )


def _is_whole(cell: Cell, trials: Sequence[Trial]) -> bool:
    """Whether a cell is complete by its records: all trials have ended, the budget is used, every seed has finished."""
    budget = budget_of_search(trials, costs_of(trials))
    left = 0.0 if budget is None or budget.is_out_of_time else budget.epochs - budget.trained
    is_spent = budget is None or left < budget.epochs_of_a_trial / 2
    is_over = all(trial[-1].status in ("finished", "pruned", "failed") for trial in trials)
    return is_over and is_spent and {*cell.seeds} <= {
        trial[-1].start.seed for trial in trials if trial[-1].status == "finished"
    }
