"""`vsetune leaderboard repeat`: from a row to the study that trains it again."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from logged_studies import logs
from repeated_studies import SEARCHED, study_of, trained
from rich.console import Console

from vsetune.config.study.cells import build_trial, resolve_cells
from vsetune.records.events import AttemptStart, ValidationPoint
from vsetune.records.studies import Studies
from vsetune.study.preparation import prepare_study
from vsetune.study.study_file import load_study
from vsetune.training.attempt import TrainingAttempt

__all__ = ["logs"]
pytestmark = pytest.mark.filterwarnings("default")  # MLflow warns about itself

LOSSES = [
    {"name": "lmh"}, {"name": "lseh", "search": "none", "fixed": {"margin": 0.2}},
    {"loss": [{"name": "lmh", "search": {"margin": "default"}}, {"name": "info_nce", "weight": 0.5}], "label": "both"},
]
HEIGHTS = {"lmh": 60.0, "lseh": 61.0, "both": 62.0}
SETTINGS = {"lmh": {"loss.margin": 0.15}, "lseh": {}, "both": {"loss.lmh.margin": 0.1, "loss.info_nce.weight": 0.25}}


@pytest.fixture
def board(study, opened) -> str:
    """A study of three losses whose second configuration won, confirmed over two seeds; nothing of it was trained."""
    search = {"configurations": 2, "training": {"learning_rate": "default"}}
    prepared = prepare_study(study(losses=LOSSES, search=search, seeds=[0, 1, 2]), Console(file=io.StringIO()))
    store = opened(prepared.record())
    for cell in prepared.cells:
        for number, seed in ((0, 0), (1, 0), (1, 1), (1, 2)):
            rate = {"training.learning_rate": 1e-3 * (1 + number)}
            configuration = {**cell.defaults(), **SETTINGS[cell.loss_name], **rate}
            name = f"{cell.name}-c{number:03d}-s{seed}"
            trial = build_trial(prepared.spec, cell, configuration, trial=name, seed=seed)
            run = store.start_attempt(AttemptStart(
                study="tiny", trial=name, cell=cell.name, network="vsepp", loss=cell.loss_name, number=1, seed=seed,
                phase="confirm" if seed else "search", configuration=configuration, resolved=trial.to_plain(),
                environment={"git_revision": "ab" * 20, "data_fingerprint": "feed"}, protocol={"images": 8},
            ))
            store.record_points(run, [
                ValidationPoint(step, 0.5 * step, 10 * step, HEIGHTS[cell.loss_name] + number + seed - step, 1.0)
                for step in (1, 2)
            ])
            store.finish_attempt(run, "finished", summary={"train_seconds": 2.0}, error=None)
    return "tiny"


def test_a_repetition_trains_what_the_row_shows_or_all_of_its_network_for_longer(vsetune, board, tmp_path) -> None:
    file = tmp_path / "again.yaml"
    assert vsetune("leaderboard", "repeat", "tiny/vsepp.both", "--output", str(file)).code == 0
    assert file.read_text().startswith("# vsepp.lmh, vsepp.both of study tiny again.\n")
    spec = load_study(file)
    cells = {cell.name: cell for cell in resolve_cells(spec, where="again")}
    assert (spec.study, spec.seeds, sorted(cells)) == ("again", [1, 2], ["vsepp.both", "vsepp.lmh"])
    assert all(not cell.domains for cell in cells.values())
    recorded = {attempt.start.trial: attempt for attempt in Studies().attempts("tiny")}
    for name, cell in cells.items():
        trial = build_trial(spec, cell, {}, trial="again", seed=1).to_plain()
        was = recorded[f"{name}-c001-s1"].start.resolved
        assert [trial[part] for part in ("network", "loss", "training")] == [
            was[part] for part in ("network", "loss", "training")
        ]
    assert vsetune("study", "validate", str(file)).code == 0
    longer = tmp_path / "longer.yaml"
    said = vsetune("leaderboard", "repeat", "tiny/vsepp.lmh", "--all", "--epochs", "6", "--output", str(longer))
    assert said.code == 0, said.err
    assert [(cell.name, cell.training["epochs"]) for cell in resolve_cells(load_study(longer), where="longer")] == [
        ("vsepp.lmh", 6.0), ("vsepp.lseh", 6.0), ("vsepp.both", 6.0),
    ]


def test_of_several_searches_the_pick_of_the_best_is_repeated_with_its_seeds(vsetune, logs, tmp_path) -> None:
    study = study_of(losses=[{"name": "lmh"}], search=SEARCHED, seeds=[0, 1, 4])
    trained(study, logs.opened(study))
    logs.close()
    found: dict[tuple[str, float], list[tuple[int, float]]] = {}
    for each in Studies().attempts("tiny"):
        if each.start.phase == "confirm":
            pick = (each.start.cell, each.start.configuration["training.learning_rate"])
            found.setdefault(pick, []).append((each.start.seed, max(m_recall for _, m_recall in each.curve)))
    assert len(found) == 3
    (cell, rate), seeds = max(found.items(), key=lambda each: sum(m_recall for _, m_recall in each[1]))
    file = tmp_path / "again.yaml"
    said = vsetune("leaderboard", "repeat", "tiny/vsepp.lmh", "--output", str(file))
    assert said.code == 0, said.err
    best = cell.partition(".r")[2] or "1"
    assert f"the pick of the best, search {best}, alone" in said.err
    assert f"the pick of the best, search {best}, alone" in file.read_text()
    spec = load_study(file)
    (again,) = resolve_cells(spec, where="again")
    assert (spec.seeds, spec.search.repeats, again.domains) == (sorted(seed for seed, _ in seeds), 1, {})
    assert again.training["learning_rate"] == rate


def test_a_row_without_a_usable_trial_cannot_be_repeated(vsetune, study, opened, tmp_path) -> None:
    prepared = prepare_study(study(), Console(file=io.StringIO()))
    store = opened(prepared.record())
    (cell,) = prepared.cells
    trial = build_trial(prepared.spec, cell, cell.defaults(), trial=f"{cell.name}-c000-s0", seed=0)
    run = store.start_attempt(AttemptStart(
        study="tiny", trial=trial.trial, cell=cell.name, network="vsepp", loss="lmh", number=1, seed=0, phase="search",
        configuration={}, resolved=trial.to_plain(), environment={}, protocol={"images": 8},
    ))
    store.finish_attempt(run, "failed", summary={}, error="numeric: loss lmh is nan")
    said = vsetune("leaderboard", "repeat", "tiny/vsepp.lmh", "--output", str(tmp_path / "again.yaml"))
    assert said.refused("VSE-X032", "tiny/vsepp.lmh")
    assert not (tmp_path / "again.yaml").exists()


def test_a_repeated_run_has_the_same_curve(vsetune, record, tmp_path) -> None:
    record()
    file = Path(tmp_path / "again.yaml")
    assert vsetune("leaderboard", "repeat", "tiny/vsepp.lmh", "--output", str(file)).code == 0
    prepared = prepare_study(file, Console(file=io.StringIO()))
    (cell,) = prepared.cells
    trial = build_trial(prepared.spec, cell, {}, trial=f"{cell.name}-again", seed=prepared.spec.seeds[0])
    attempt = TrainingAttempt(trial, tmp_path / "again", device="cpu", threads=1)
    curve = []
    while not attempt.is_finished:
        point = attempt.advance()
        curve.append((point.epoch, point.m_recall))
    (recorded,) = Studies().attempts("tiny")
    assert tuple(curve) == recorded.curve


def test_a_board_of_one_seed_has_no_intervals_over_images(vsetune, record) -> None:
    record()
    assert vsetune("leaderboard", "images", "tiny", "--baseline", "lmh").refused("VSE-S193")
