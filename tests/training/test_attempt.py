"""One attempt: what it trains, when it validates, what it reports."""

from __future__ import annotations

import gc
import math
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from refusals import refused
from safetensors.torch import load_file
from trained_here import open_attempt, train

import vsetune
from vsetune.data.batches.batch import Batch
from vsetune.errors import AttemptError, ConfigError, DataError, NumericError
from vsetune.training.checkpoint import CHECKPOINT_FILE
from vsetune.training.evaluation import evaluate
from vsetune.training.step import Learner, StepResult
from vsetune.version import PACKAGE_FOLDER, git_revision

UNNORMALISED = {"name": "vsepp", "embedding_size": 8, "word_size": 6, "normalize_images": False}
LOSSES = ["lsh", "lmh", "lseh", "top_f", "adaptive_margin", "info_nce"]


def test_epochs_of_a_curve_are_pairs_seen_over_pairs(make_trial: Any, tmp_path: Path) -> None:
    attempt = train(make_trial(epochs=1.5, validate_every_steps=4), tmp_path)
    # 42 pairs, batches of 8, 8, 8, 8, 8, 2 per epoch; validations after 4, 6 (end), 8, 9 (budget) steps
    assert [(p.step, p.pairs_seen) for p in attempt.history] == [(4, 32), (6, 42), (8, 58), (9, 66)]
    assert [p.epoch for p in attempt.history] == [32 / 42, 1.0, 58 / 42, 66 / 42]


def test_a_budget_below_one_epoch_ends_within_it(make_trial: Any, tmp_path: Path) -> None:
    attempt = train(make_trial(epochs=0.5), tmp_path)
    assert [p.step for p in attempt.history] == [3]
    with refused("VSE-T001", by=AttemptError, epochs=0.5):
        attempt.advance()


def test_training_learns_to_retrieve(make_trial: Any, tmp_path: Path) -> None:
    attempt = train(make_trial(epochs=12.0, loss={"name": "info_nce"}, learning_rate=0.02), tmp_path)
    first, last = attempt.history[0], attempt.history[-1]
    assert last.metrics["train_loss"] < 0.5 * first.metrics["train_loss"]
    assert last.metrics["i2t_r1"] > 50  # chance is 1 in 12
    assert last.metrics["t2i_r1"] > 50


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_trains_also_on_a_last_batch_of_one_pair(name: str, make_trial: Any, tmp_path: Path) -> None:
    point = train(make_trial(epochs=1.0, batch_size=41, loss={"name": name}), tmp_path).history[-1]
    assert point.step == 2
    assert math.isfinite(point.metrics["train_loss"])


@pytest.mark.parametrize("name", ["top_f", "info_nce"])
def test_batches_of_images_count_all_their_pairs(name: str, make_trial: Any, tmp_path: Path) -> None:
    trial = make_trial(epochs=1.0, batch_size=5, batch_unit="images", loss={"name": name}, validate_every_steps=2)
    assert [p.pairs_seen for p in train(trial, tmp_path).history] == [20, 40, 42]


def test_a_point_says_everything_about_its_window(make_trial: Any, tmp_path: Path) -> None:
    point = open_attempt(make_trial(), tmp_path).advance()
    recalls = {f"{way}_r{k}" for way in ("i2t", "t2i") for k in (1, 5, 10)}
    expected = recalls | {
        "rsum", "i2t_median_rank", "t2i_median_rank", "i2t_mean_rank", "t2i_mean_rank", "tie_share", "train_loss",
        "loss_active_share", "gradient_norm", "learning_rate", "unique_negatives_captions", "unique_negatives_images",
        "unique_negatives_active_captions", "unique_negatives_active_images", "train_seconds", "load_seconds",
        "validation_seconds", "device_seconds", "pairs_per_second",
    }
    assert expected <= point.metrics.keys()
    assert point.m_recall == pytest.approx(sum(point.metrics[name] for name in recalls) / 6)
    assert 1 <= point.metrics["unique_negatives_captions"] <= 8
    assert all(math.isfinite(value) for value in point.metrics.values())


def test_the_time_of_a_step_ends_when_what_it_made_is_freed(
    make_trial: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[weakref.ref[Any]] = []
    looks: list[int] = []
    inner = Learner.step

    def step(learner: Learner, batch: Batch, drawn: Batch | None = None) -> StepResult:
        result = inner(learner, batch, drawn)
        made.extend((weakref.ref(batch), weakref.ref(result), weakref.ref(result.output.value)))
        return result

    def clock() -> float:
        looks.append(sum(each() is not None for each in made))
        return 0.0

    monkeypatch.setattr(Learner, "step", step)
    attempt = open_attempt(make_trial(), tmp_path)
    monkeypatch.setattr(attempt._loop, "_clock", clock)
    attempt.advance()
    assert len(made) > 0
    assert set(looks) == {0}


def test_the_rate_follows_the_schedule(make_trial: Any, tmp_path: Path) -> None:
    attempt = train(make_trial(epochs=3.0, learning_rate_step=1.0, learning_rate_drop=0.5), tmp_path)
    assert [p.metrics["learning_rate"] for p in attempt.history] == [0.01, 0.005, 0.0025]


def test_the_gradient_norm_is_reported_before_the_clip(make_trial: Any, tmp_path: Path) -> None:
    clipped = open_attempt(make_trial(gradient_clip=1e-4), tmp_path / "a").advance()
    free = open_attempt(make_trial(gradient_clip=None), tmp_path / "b").advance()
    assert clipped.metrics["gradient_norm"] > 0.1
    assert free.metrics["gradient_norm"] > 0.1


def test_a_learned_temperature_is_trained(make_trial: Any, tmp_path: Path) -> None:
    trial = make_trial(loss={"name": "info_nce", "learned": True}, epochs=2.0)
    temperatures = [p.metrics["loss_temperature"] for p in train(trial, tmp_path).history]
    assert temperatures[0] != temperatures[1]


def test_losses_start_their_warm_up_with_the_epoch(make_trial: Any, tmp_path: Path) -> None:
    attempt = train(make_trial(loss={"name": "lmh", "warmup_epochs": 1}, epochs=2.0), tmp_path)
    assert ["loss_active_share" in p.metrics for p in attempt.history] == [False, True]


def test_the_best_checkpoint_is_the_first_best_validation(make_trial: Any, tmp_path: Path) -> None:
    attempt = train(make_trial(epochs=6.0, learning_rate=0.05), tmp_path)
    summary = attempt.summary()
    best = max(p.m_recall for p in attempt.history)
    first = next(p for p in attempt.history if p.m_recall == best)
    shown = (summary["best_m_recall"], summary["epochs_to_best"], summary["best_step"])
    assert shown == (best, first.epoch, first.step)

    shorter = train(make_trial(epochs=first.epoch, learning_rate=0.05), tmp_path / "until best")
    until = torch.load(shorter.best_path.with_name(CHECKPOINT_FILE), weights_only=True)["state"]["learner"]["network"]
    weights = load_file(attempt.best_path)
    assert all(torch.equal(weights[name], until[name]) for name in until)


def test_a_finished_trial_is_scored_on_the_test_split_by_its_best_weights(make_trial: Any, tmp_path: Path) -> None:
    summary = train(make_trial(epochs=4.0), tmp_path / "a").finish()
    as_test = make_trial(epochs=4.0, data={"test_split": "validation"})
    best = train(as_test, tmp_path / "b").finish()
    assert best["test_m_recall"] == best["best_m_recall"]
    assert best["test_m_recall"] != summary["test_m_recall"]
    assert {"test_i2t_r1", "test_t2i_r10", "test_rsum"} <= summary.keys()


def test_the_test_split_is_not_touched_before_the_budget_is_spent(make_trial: Any, tmp_path: Path) -> None:
    attempt = open_attempt(make_trial(epochs=2.0), tmp_path)
    attempt.advance()
    assert not any(name.startswith("test_") for name in attempt.finish())


def test_a_data_set_without_test_split_gives_no_test_scores(make_trial: Any, tmp_path: Path) -> None:
    for number, split in enumerate((None, "not_there")):
        summary = train(make_trial(epochs=0.5, data={"test_split": split}), tmp_path / str(number)).finish()
        assert not any(name.startswith("test_") for name in summary)


def test_the_best_weights_are_scored_in_place_so_the_parameters_are_held_once(
    make_trial: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = train(make_trial(epochs=6.0, learning_rate=0.3), tmp_path)
    assert attempt.summary()["epochs_to_best"] < 6  # so that best and last differ
    network, held = attempt._learner.network, []
    largest = max(network.parameters(), key=torch.numel).shape

    def scored(*given: Any, **named: Any) -> dict[str, float]:
        held.append(tensors_of(largest))
        return evaluate(*given, **named)

    monkeypatch.setattr("vsetune.training.attempt.evaluate", scored)
    before = tensors_of(largest)
    attempt.finish()
    assert held == [before]
    best = load_file(attempt.best_path)
    assert all(torch.equal(value, best[name]) for name, value in network.state_dict().items())


def tensors_of(shape: torch.Size) -> int:
    """How many are held in this process: parameters, gradients, what an optimizer keeps."""
    gc.collect()
    return sum(type(each) in (torch.Tensor, torch.nn.Parameter) and each.shape == shape for each in gc.get_objects())


def test_a_loss_that_is_not_finite_names_step_rate_and_remedy(make_trial: Any, tmp_path: Path) -> None:
    attempt = open_attempt(make_trial(network=UNNORMALISED), tmp_path)
    attempt.advance()
    kept = (tmp_path / CHECKPOINT_FILE).read_bytes()
    with torch.no_grad():
        attempt._learner.network.image_map.weight.fill_(float("nan"))
    where = "study tiny trial vsepp.lmh-c00-s0 attempt 1"
    with refused("VSE-T003", by=NumericError, where=where, step=7, loss="lmh", rate=0.01):
        attempt.advance()
    assert (tmp_path / CHECKPOINT_FILE).read_bytes() == kept


def test_similarities_that_are_not_finite_fail_the_validation(make_trial: Any, tmp_path: Path) -> None:
    attempt = open_attempt(make_trial(epochs=1.0, network=UNNORMALISED), tmp_path)
    learn = attempt._learner.loss.after_step

    def poison() -> None:
        learn()
        if attempt._progress.step == 5:  # after the last gradient step of the epoch
            with torch.no_grad():
                attempt._learner.network.image_map.bias.fill_(float("nan"))

    attempt._learner.loss.after_step = poison  # type: ignore[method-assign]
    with pytest.raises(NumericError, match="step 6: split validation: .*not finite"):
        attempt.advance()
    assert not attempt.best_path.exists()


def test_a_batch_larger_than_the_split_is_refused(make_trial: Any, tmp_path: Path) -> None:
    with refused("VSE-T006", by=ConfigError, key="training.batch_size", got=43, available=42, unit="pairs"):
        open_attempt(make_trial(batch_size=43), tmp_path)
    with refused("VSE-T006", available=21, unit="images"):
        open_attempt(make_trial(batch_size=22, batch_unit="images", loss={"name": "top_f"}), tmp_path)


def test_a_missing_split_is_refused_before_training(make_trial: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no split 'dev'"):
        open_attempt(make_trial(data={"validation_split": "dev"}), tmp_path)


def test_protocol_and_environment_are_plain_and_complete(make_trial: Any, tmp_path: Path) -> None:
    attempt = open_attempt(make_trial(validate_every_steps=4), tmp_path)
    protocol, environment = attempt.protocol(), attempt.environment()
    assert (protocol["dataset"], protocol["split"], protocol["images"], protocol["captions"]) == (
        "shapes", "validation", 12, 24,
    )
    assert (protocol["validate_every_steps"], protocol["batch_size"], protocol["steps_per_epoch"]) == (4, 8, 6)
    assert (protocol["tie_rule"], protocol["score_dtype"]) == ("pessimistic", "float32")
    assert protocol["data_fingerprint"] == environment["data_fingerprint"] == attempt.dataset.fingerprint
    assert all(isinstance(value, str) for value in environment.values())
    assert {"git_revision", "package_torch", "platform", "device_name", "python"} <= environment.keys()


def test_the_revision_is_that_of_the_whole_package() -> None:
    """A changed loss or network counts as a change, wherever in the package it is."""
    assert Path(vsetune.__file__).resolve().parent == PACKAGE_FOLDER
    assert git_revision() == git_revision(PACKAGE_FOLDER)


def test_an_attempt_trained_to_the_end_has_nothing_left_to_train(make_trial: Any, tmp_path: Path) -> None:
    attempt = open_attempt(make_trial(), tmp_path)
    assert [attempt.advance().step, attempt.advance().step] == [6, 12]
    assert attempt.is_finished
    summary = attempt.finish()
    assert (summary["epochs"], summary["steps"], summary["pairs_seen"], summary["validations"]) == (2.0, 12, 84, 2)
    assert summary["device_seconds"] >= summary["train_seconds"] > 0
    assert summary["seconds_per_epoch"] == pytest.approx(summary["train_seconds"] / 2)
    assert "test_m_recall" in summary
    again = open_attempt(make_trial(), tmp_path)
    assert again.is_finished
    assert again.finish()["test_m_recall"] == summary["test_m_recall"]


def test_the_spread_of_semantic_cosines_stands_with_the_attempt(make_trial: Any, tmp_path: Path) -> None:
    plain = open_attempt(make_trial(), tmp_path / "plain")
    semantic = open_attempt(make_trial(loss={"name": "lseh"}), tmp_path / "semantic")
    assert "semantic_cosines" not in plain.environment()
    described = semantic.environment()
    assert described["semantic_vectors"] == "svd-400"
    assert float(described["semantic_cosines"].split(" ± ")[1].split(",")[0]) > 0
    plain.close(), semantic.close()
