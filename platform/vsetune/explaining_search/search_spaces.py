"""Search space and epoch budget of every cell of a recorded study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vsetune.config.spec.base import Domain
from vsetune.config.study.cells import Cell, resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import ConfigError, StorageError
from vsetune.explaining_search.setting_axes import seen_domain
from vsetune.jobs.cell_budget import epochs_of_cell
from vsetune.jobs.recorded_studies import study_of
from vsetune.leaderboard.selection import Trial
from vsetune.records.attempts import StudyRecord


@dataclass(frozen=True)
class SearchSpace:
    """One cell. domains: of every searched setting, by dotted name. epochs: its budget. epochs_of_a_trial: of a trial
    that is not stopped early. Both are None where unknown. device_seconds: its budget, None without one.

    is_seen: the study could not be read here, so the domains are the ranges that the trials span. written: the study
    and the cell that the domains were read from, None if they could not be read.
    """

    cell: str
    domains: Mapping[str, Domain]
    epochs: float | None
    epochs_of_a_trial: float | None = None
    device_seconds: float | None = None
    is_seen: bool = False
    written: tuple[StudySpec, Cell] | None = None


def spaces_of(record: StudyRecord, searches: Mapping[str, Sequence[Trial]]) -> tuple[list[SearchSpace], str]:
    """The search spaces of the cells of a study, and a remark, empty if the study could be read.

    A study of another version, or with user components whose code is not here, cannot be read. The spaces are then
    those of cells with trials, with the ranges that the trials span.
    """
    try:
        return _as_written(record), ""
    except (ConfigError, StorageError) as error:
        spaces = [_as_seen(cell, trials) for cell, trials in searches.items()]
        reason = str(error).splitlines()[0]
        return spaces, f"The study cannot be read here ({reason}), so ranges are those of its trials, on linear axes."


def _as_written(record: StudyRecord) -> list[SearchSpace]:
    study = study_of(record)
    return [
        SearchSpace(
            cell.name, cell.domains, epochs_of_cell(study, cell), float(cell.training["epochs"]),
            study.budget.device_seconds_per_cell, written=(study, cell),
        )
        for cell in resolve_cells(study, where=f"study {record.name}")
    ]


def _as_seen(cell: str, trials: Sequence[Trial]) -> SearchSpace:
    values: dict[str, list[Any]] = {}
    for trial in trials:
        for name, value in trial[-1].start.configuration.items():
            if name != "seed":
                values.setdefault(name, []).append(value)
    return SearchSpace(cell, {name: seen_domain(seen) for name, seen in values.items()}, None, is_seen=True)
