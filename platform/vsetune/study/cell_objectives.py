"""Objectives of a study's cells, and their targets, which may depend on the baseline's search."""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

from vsetune.board.selection import winner_of
from vsetune.config.study.cells import Cell, repeat_name
from vsetune.config.study.study_spec import StudySpec
from vsetune.metrics.curves import best_of_curve
from vsetune.records.events import CONSTRAINT_EXCESS, SEARCH_VALUE
from vsetune.records.state import Trial
from vsetune.search.objectives import Curve, Objective, share_above_limit

_log = logging.getLogger(__name__)


def target_cell(study: StudySpec, cell: Cell, cells: Container[str]) -> str | None:
    """The cell whose best M-Recall is the target of this one, the same repeat of the baseline; None if it needs no such
    target. cells: names of all."""
    is_needed = study.search.objective == "epochs_to_target" and isinstance(study.search.target, str)
    if not is_needed or not cell.is_trained or cell.loss_name == study.baseline:
        return None
    first = f"{cell.network_name}.{study.baseline}"
    own = repeat_name(first, cell.repeat)
    return own if own in cells else first


def objective_of(study: StudySpec, cell: Cell, baseline: Sequence[Trial] | None) -> Objective:
    """The objective of a cell. baseline: the search of its `target_cell`, which must be over; None without one.

    The target is the best M-Recall of the baseline's winner with the search seed. The baseline's cell itself is
    searched for M-Recall, as are cells whose baseline has no finished winner.
    """
    search, whole = study.search, float(cell.training["epochs"])
    plain = Objective(search.objective if cell.is_trained else "best_m_recall", whole)
    if plain.kind != "epochs_to_target":
        return plain
    if not isinstance(search.target, str):
        return replace(plain, target=search.target)
    if baseline is None:
        return Objective("best_m_recall", whole)
    winner = winner_of(baseline)
    if winner is None or winner.status != "finished":
        _log.warning(
            "cell %s: nothing of the baseline %s has finished, so there is no target; it is searched for the best "
            "M-Recall", cell.name, study.baseline,
        )
        return Objective("best_m_recall", whole)
    return replace(plain, target=best_of_curve(winner.curve).m_recall)


def search_numbers(
    study: StudySpec, objective: Objective | None, curve: Curve, summary: Mapping[str, float]
) -> dict[str, float]:
    """Numbers of a search trial that are stored with its summary: the value of its objective, unless that is the best
    M-Recall, and by how much it breaks a constraint."""
    found: dict[str, float] = {}
    if objective is not None and objective.kind != "best_m_recall" and curve:
        found[SEARCH_VALUE] = objective.value(curve)
    if study.search.constraints.given:
        found[CONSTRAINT_EXCESS] = share_above_limit(study.search.constraints, summary)
    return found
