"""Studies whose searches are repeated, trained at once: M-Recall is the learning rate's and the seed's."""

from __future__ import annotations

from typing import Any

from logged_studies import begun

from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import Cell, repeated_cells, resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.records.events import ValidationPoint
from vsetune.records.writer import StudyWriter
from vsetune.study.confirmations import Confirming
from vsetune.study.ledger import StudyLedger
from vsetune.study.study_records import logged_search
from vsetune.study.trials import Assignment

SEARCHED = {"training": {"learning_rate": {"low": 1e-4, "high": 1e-1, "log": True}}}


def study_of(**changes: Any) -> StudySpec:
    plain: dict[str, Any] = {
        "study": "tiny", "data": {"path": "x"}, "networks": [{"name": "vsepp"}], "training": {"epochs": 2},
        "losses": [{"name": "lmh"}, {"name": "lsh", "search": "none"}], "scheduler": {"kind": "none"},
        "search": {"configurations": 3, "repeats": 3, **changes.pop("search", {})}, "seeds": [1, 4],
    }
    return parse_spec(plain | changes, StudySpec, where="test")


def cells_of(study: StudySpec) -> list[Cell]:
    return repeated_cells(study, resolve_cells(study, where="test"))


def trained(
    study: StudySpec, writer: StudyWriter, confirming: Confirming | None = None, *, is_open: bool = False
) -> list[Assignment]:
    """The trials that a new process runs. M-Recall is the learning rate's and the seed's, so winners differ. is_open:
    the study has been opened in the log."""
    if not is_open:
        begun(writer, study)
    search = logged_search(writer, cells_of(study), study.search)
    ledger = StudyLedger(study, cells_of(study), writer, search, confirming=confirming)
    ledger.recover()
    done: list[Assignment] = []
    while isinstance(assignment := ledger.next(), Assignment):
        done.append(assignment)
        name = assignment.trial.trial
        ledger.open_attempt(name, number=1, environment={}, protocol={}, inherited=[])
        height = 40 + 100 * assignment.trial.training.learning_rate + assignment.trial.seed / 10
        ledger.record_point(name, ValidationPoint(1, 2.0, 2, height, 1.0))
        ledger.close(name, "finished", summary={"epochs": 2.0})
    return done
