"""What one study learns from another: whole trials of the same kind, shared settings to start from, as many to each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from logged_studies import Logs, begun, logs

from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import build_trial, resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import UsageError
from vsetune.records.events import AttemptStart, ValidationPoint
from vsetune.records.studies import Studies
from vsetune.records.writer import StudyWriter
from vsetune.search.configurations import ConfigurationSearch
from vsetune.search.objectives import Objective
from vsetune.study.confirmations import Confirming
from vsetune.study.ledger import StudyLedger
from vsetune.study.trials import Assignment
from vsetune.study.warm_start import kept_or_taken, take

__all__ = ["logs"]

RATE = {"learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}}


def make_study(name: str, losses: list[Any], **search: Any) -> StudySpec:
    plain = {
        "study": name, "data": {"path": "x"}, "networks": [{"name": "vsepp"}], "losses": losses,
        "training": {"epochs": 2},
        "search": {"configurations": 6, "training": RATE, **search}, "baseline": "lmh", "scheduler": {"kind": "none"},
    }
    return parse_spec(plain, StudySpec, where="test")


@pytest.fixture
def studies(logs: Logs) -> Studies:
    """`first` has three trials of lmh, whose third is the best."""
    study = make_study("first", [{"name": "lmh"}])
    (cell,) = resolve_cells(study, where="test")
    writer = logs.opened(study)
    for number, (rate, best) in enumerate(((2e-4, 30.0), (1e-3, 31.0), (5e-3, 35.0))):
        configuration = {"loss.margin": 0.2, "training.learning_rate": rate}
        name = f"vsepp.lmh-c00{number}-s0"
        trial = build_trial(study, cell, configuration, trial=name, seed=0)
        run = writer.start_attempt(AttemptStart(
            "first", name, "vsepp.lmh", "vsepp", "lmh", 1, 0, "search", configuration, trial.to_plain(),
            protocol={"data_fingerprint": "d"},
        ))
        writer.record_points(run, [ValidationPoint(1, 1.0, 1, best - 5, 1.0), ValidationPoint(2, 2.0, 2, best, 1.0)])
        writer.finish_attempt(run, "finished", summary={}, error=None)
    return Studies()


def test_trials_of_the_same_kind_count_as_the_cells_own(studies: Studies) -> None:
    study = make_study("second", [{"name": "lmh"}], warm_start=["first"])
    cells = resolve_cells(study, where="test")
    (warm,) = take(study, cells, studies.attempts("first"), data_fingerprint="d").values()
    assert warm.tag == "told of 3 trials of first"
    lessons = warm.lessons(Objective("epochs_to_target", 2.0, 30.0))
    assert [lesson.value for lesson in lessons] == [-2.0, pytest.approx(-1.8), -1.0]

    search = ConfigurationSearch(cells, study.search)
    writer = begun(StudyWriter(), study)
    ledger = StudyLedger(study, cells, writer, search, warm_start={"vsepp.lmh": warm})
    first = ledger.next()
    assert isinstance(first, Assignment)
    assert (first.number, dict(first.configuration)) == (3, cells[0].defaults())
    ledger.open_attempt(first.trial.trial, number=1, environment={}, protocol={}, inherited=[])
    (attempt,) = writer.attempts()
    assert attempt.start.environment["warm_start"] == "told of 3 trials of first"
    assert attempt.start.environment["drawn_by"] == "the papers' defaults"
    assert [each.number for each in search.suggestions("vsepp.lmh")] == [3]


def test_of_other_trials_shared_settings_are_where_the_search_starts(studies: Studies) -> None:
    study = make_study("second", [{"name": "lmh"}], warm_start=["first"])
    cells = resolve_cells(study, where="test")
    (warm,) = take(study, cells, studies.attempts("first"), data_fingerprint="other data").values()
    assert warm.tag == "starts from first/vsepp.lmh-c002-s0"
    search = ConfigurationSearch(cells, study.search)
    search.teach("vsepp.lmh", [], [{"training.learning_rate": 5e-3}])
    asked = [search.ask("vsepp.lmh").configuration for _ in range(3)]
    assert dict(asked[0]) == cells[0].defaults()
    assert [each["training.learning_rate"] == 5e-3 for each in asked] == [False, True, False]


def test_a_search_starts_once_from_shared_settings_and_a_confirmation_tells_them_beside_its_roles(
    studies: Studies,
) -> None:
    study = make_study("second", [{"name": "lmh"}], warm_start=["first"], configurations=3)
    cells = resolve_cells(study, where="test")
    warm = take(study, cells, studies.attempts("first"), data_fingerprint="other data")
    search = ConfigurationSearch(cells, study.search)
    writer = begun(StudyWriter(), study)
    ledger = StudyLedger(study, cells, writer, search, warm_start=warm)
    assert [run(ledger)["training.learning_rate"] == 5e-3 for _ in range(3)] == [False, True, False]

    confirming = StudyLedger(
        study, cells, writer, search, warm_start=warm, confirming=Confirming(1, contenders=True)
    )
    confirming.recover()
    run(confirming)
    (confirmed,) = (each.start for each in writer.attempts() if each.start.phase == "confirm")
    assert confirmed.environment == {"confirms": "winner", "warm_start": "starts from first/vsepp.lmh-c002-s0"}


def run(ledger: StudyLedger) -> Mapping[str, Any]:
    """The configuration of the trial that was next; the later ones are worth more."""
    assignment = ledger.next()
    assert isinstance(assignment, Assignment)
    name = assignment.trial.trial
    ledger.open_attempt(name, number=1, environment={}, protocol={}, inherited=[])
    ledger.record_point(name, ValidationPoint(2, 2.0, 2, 30.0 + assignment.number, 1.0))
    ledger.close(name, "finished", summary={"epochs": 2.0})
    return assignment.configuration


def test_every_cell_gets_the_same_number(studies: Studies) -> None:
    study = make_study("second", [{"name": "lmh"}, {"name": "lseh"}], warm_start=["first"])
    cells = resolve_cells(study, where="test")
    warm = take(study, cells, studies.attempts("first"), data_fingerprint="d")
    assert {cell: each.tag for cell, each in warm.items()} == dict.fromkeys(  # no trial of lseh could be told of
        ["vsepp.lmh", "vsepp.lseh"], "starts from first/vsepp.lmh-c002-s0",
    )
    assert warm["vsepp.lseh"].starts[0].settings.keys() == {"loss.margin", "training.learning_rate"}


def test_what_was_taken_stays_when_the_other_study_goes_on(studies: Studies, tmp_path: Path) -> None:
    study = make_study("second", [{"name": "lmh"}], warm_start=["first"])
    cells = resolve_cells(study, where="test")
    taken = kept_or_taken(study, cells, tmp_path, store=lambda: studies, data_fingerprint="d")
    assert kept_or_taken(study, cells, tmp_path, store=Studies, data_fingerprint="d") == taken
    unknown = make_study("second", [{"name": "lmh"}], warm_start=["frist"])
    with pytest.raises(UsageError, match=r"^search.warm_start: .*frist"):
        kept_or_taken(unknown, cells, tmp_path / "new", store=Studies, data_fingerprint="d")


def test_what_was_drawn_as_a_fraction_is_not_learnt_where_whole_numbers_are_searched(logs: Logs) -> None:
    losses = [{"name": "lmh", "search": {"memory_size": {"low": 0, "high": 64}}}]
    study = make_study("second", losses, warm_start=["third"], training={})
    (cell,) = resolve_cells(study, where="test")
    writer = logs.opened(study.model_copy(update={"study": "third"}))
    for number, size in enumerate((8.5, 16.0)):
        name = f"vsepp.lmh-c00{number}-s0"
        trial = build_trial(study, cell, {"loss.memory_size": int(size)}, trial=name, seed=0)
        run = writer.start_attempt(AttemptStart(
            "third", name, "vsepp.lmh", "vsepp", "lmh", 1, 0, "search", {"loss.memory_size": size}, trial.to_plain(),
            protocol={"data_fingerprint": "d"},
        ))
        writer.record_points(run, [ValidationPoint(1, 1.0, 1, 30.0, 1.0), ValidationPoint(2, 2.0, 2, 31.0, 1.0)])
        writer.finish_attempt(run, "finished", summary={}, error=None)
    (warm,) = take(study, [cell], writer.attempts(), data_fingerprint="d").values()
    (taken,) = warm.told
    assert (taken.settings, type(taken.settings["loss.memory_size"])) == ({"loss.memory_size": 16}, int)
