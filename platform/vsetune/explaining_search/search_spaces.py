"""What the search of every cell of a recorded study may vary, and how many epochs it has for that."""

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
    """One cell. domains: of every searched setting by dotted name. epochs: its budget, epochs_of_a_trial: of one that
    nobody stops, both None where nobody knows. device_seconds: the budget of them where the study has one.

    is_seen: the study could not be read here, so the domains are what the trials span. written: what they are read
    from, where it could.
    """

    cell: str
    domains: Mapping[str, Domain]
    epochs: float | None
    epochs_of_a_trial: float | None = None
    device_seconds: float | None = None
    is_seen: bool = False
    written: tuple[StudySpec, Cell] | None = None


def spaces_of(record: StudyRecord, searches: Mapping[str, Sequence[Trial]]) -> tuple[list[SearchSpace], str]:
    """The spaces of all cells of a study, and why they are only what was seen; empty where they are the study's own.

    A study of another version, or of somebody's components whose code is not here, cannot be read; what its trials
    span stands in for its ranges then.
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
