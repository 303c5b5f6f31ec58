"""The loss and the network of studies/plugins go through the whole platform like our own."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from rich.console import Console
from safetensors.torch import load_file

from vsetune.board.building import build
from vsetune.config.plugins import forget_plugins
from vsetune.config.study.cells import build_trial
from vsetune.quality.checks import Result
from vsetune.quality.loss_batches import LossSubject
from vsetune.quality.loss_checks import LOSS_CHECKS
from vsetune.quality.network_checks import NETWORK_CHECKS
from vsetune.quality.network_learning import NetworkSubject
from vsetune.quality.subjects import loss_at, network_at
from vsetune.records.studies import Studies
from vsetune.study.preparation import PreparedStudy, prepare_study
from vsetune.study.run import run_study
from vsetune.training.attempt import TrainingAttempt

pytestmark = pytest.mark.filterwarnings("default")  # Ray and MLflow warn about themselves

STUDIES = Path(__file__).parents[2] / "studies"


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    forget_plugins()


def small_study(folder: Path, **changes: Any) -> PreparedStudy:
    """studies/plugins.yaml with little data and small networks."""
    plain = yaml.safe_load((STUDIES / "plugins.yaml").read_text())
    for network in plain["networks"]:
        network["fixed"] = {"embedding_size": 16, "word_size": 8}
    plain |= {
        "plugins": [str(STUDIES / "plugins")],
        "data": {"path": "data/scenes", "scenes": {"train": 48, "validation": 16, "test": 16}},
        "training": {"epochs": 2, "batch_size": 40, "validate_every_steps": 3, "learning_rate": 1e-3},
        "search": {"configurations": 2}, "scheduler": {"kind": "none"},
    } | changes
    path = folder / "plugins.yaml"
    path.write_text(yaml.safe_dump(plain))
    return prepare_study(path, Console(file=io.StringIO(), width=200))


def test_the_study_searches_both_beside_our_own(tmp_path: Path) -> None:
    prepared = small_study(tmp_path)
    assert [cell.name for cell in prepared.cells] == [
        "vsepp.lmh", "vsepp.dcl", "word_cnn.lmh", "word_cnn.dcl",
    ]
    assert {"network.filters", "loss.scale"} <= set(prepared.cells[3].defaults())


def test_the_loss_passes_its_quality_list() -> None:
    subject = LossSubject(loss_at(STUDIES / "plugins" / "dcl"))
    found = {check.name: check.finding(subject) for check in LOSS_CHECKS}
    assert {name for name, each in found.items() if each.result is not Result.HOLDS} == {"several captions"}


def test_the_network_passes_its_quality_list() -> None:
    subject = NetworkSubject(network_at(STUDIES / "plugins" / "word_cnn"))
    found = {check.name: check.finding(subject) for check in NETWORK_CHECKS}
    assert {name for name, each in found.items() if each.result is not Result.HOLDS} == {"attention"}


def test_a_training_with_both_goes_on_bit_for_bit_after_an_interruption(tmp_path: Path) -> None:
    prepared = small_study(tmp_path)
    cell = prepared.cells[3]
    trial = build_trial(prepared.spec, cell, cell.defaults(), trial="t", seed=0)

    def trained(folder: Path, attempts: int) -> Any:
        for _ in range(attempts):
            attempt = TrainingAttempt(trial, folder, device="cpu", threads=1)
            attempt.advance()
            attempt.close()
        attempt = TrainingAttempt(trial, folder, device="cpu", threads=1)
        while not attempt.is_finished:
            attempt.advance()
        return attempt

    whole, resumed = trained(tmp_path / "whole", 0), trained(tmp_path / "resumed", 2)
    assert [point.m_recall for point in resumed.history] == [point.m_recall for point in whole.history]
    best, other = (load_file(each.best_path) for each in (whole, resumed))
    assert best.keys() == other.keys()
    assert all(torch.equal(value, other[name]) for name, value in best.items())


@pytest.mark.slow
def test_a_study_with_both_runs_on_ray_fills_the_board_and_resumes_to_nothing(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=200)
    prepared = small_study(tmp_path)
    outcome = run_study(prepared, resume=False, retry_failed=False, address=None, console=console)
    assert dict(outcome.counts) == {"finished": 8}
    board = build(Studies().attempts("plugins"), baseline="lmh")
    assert {(row.network, row.loss) for row in board.rows} == {
        (network, loss) for network in ("vsepp", "word_cnn") for loss in ("lmh", "dcl")
    }
    forget_plugins()
    again = run_study(small_study(tmp_path), resume=True, retry_failed=False, address=None, console=console)
    assert dict(again.counts) == {"finished": 8}
    assert len(Studies().attempts("plugins")) == 8
