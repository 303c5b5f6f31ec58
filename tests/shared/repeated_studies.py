"""Studies whose searches are repeated, trained at once: M-Recall is the learning rate's and the seed's."""

from __future__ import annotations

from typing import Any

from driven_ledgers import cells_of, ledger_of, run_through

from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.study_spec import StudySpec
from vsetune.records.writer import StudyWriter
from vsetune.study.confirmations import Confirming
from vsetune.study.trials import PlannedTrial

__all__ = ["SEARCHED", "cells_of", "study_of", "trained"]
SEARCHED = {"training": {"learning_rate": {"low": 1e-4, "high": 1e-1, "log": True}}}


def study_of(**changes: Any) -> StudySpec:
    plain: dict[str, Any] = {
        "study": "tiny", "data": {"path": "x"}, "networks": [{"name": "vsepp"}], "training": {"epochs": 2},
        "losses": [{"name": "lmh"}, {"name": "lsh", "search": "none"}], "scheduler": {"kind": "none"},
        "search": {"configurations": 3, "repeats": 3, **changes.pop("search", {})}, "seeds": [1, 4],
    }
    return parse_spec(plain | changes, StudySpec, where="test")


def trained(
    study: StudySpec, writer: StudyWriter, confirming: Confirming | None = None, *, is_open: bool = False
) -> list[PlannedTrial]:
    """The trials that a new process runs. M-Recall is the learning rate's and the seed's, so winners differ. is_open:
    the study has been opened in the log."""
    ledger = ledger_of(study, writer, is_open=is_open, confirming=confirming)
    done: list[PlannedTrial] = []
    while isinstance(planned := ledger.next(), PlannedTrial):
        done.append(planned)
        name = planned.name
        height = 40 + 100 * planned.spec.training.learning_rate + planned.spec.seed / 10
        run_through(ledger, name, [(2, height)], epochs=2.0)
    return done
