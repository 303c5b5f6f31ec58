"""Trainings of dual encoders: every loss, resumed trials, frozen towers and their vectors, rates, learned scales."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from refusals import refused
from safetensors.torch import load_file
from tiny_dual_encoders import SIZE, save_tiny
from trained_here import CPU, advanced_anew, first_step, fresh_network, learner_of, open_attempt, train

from vsetune.config.component_specs import LOSSES
from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.training import TrialSpec
from vsetune.data.batches import image_processors
from vsetune.errors import ConfigError
from vsetune.networks.dual_encoder.spec import DualEncoderSpec
from vsetune.networks.dual_encoder.trained_layers import layers_of
from vsetune.training.batches import TrainingBatches
from vsetune.training.evaluation import evaluate
from vsetune.training.frozen_vectors import frozen_vectors

Make = Callable[..., TrialSpec]


@pytest.fixture(scope="module")
def towers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders of a tiny CLIP and a tiny SigLIP."""
    folders = {kind: tmp_path_factory.mktemp(kind) for kind in ("clip", "siglip")}
    for kind, folder in folders.items():
        save_tiny(kind, folder)
    return {kind: str(folder) for kind, folder in folders.items()}


@pytest.fixture(scope="module")
def make(make_trial: Any, towers: dict[str, str]) -> Make:
    """Trials of the tiny CLIP. Keyword arguments with the name of a field of the network change the network."""

    def made(*, model: str | None = towers["clip"], **settings: Any) -> TrialSpec:
        own = {key: settings.pop(key) for key in list(settings) if key in DualEncoderSpec.model_fields}
        network = {"name": "dual_encoder", "model": model, "image_size": SIZE} | own
        return make_trial(network=network, **{"loss": {"name": "clip"}} | settings)

    return made


OF_A_LOSS: dict[str, dict[str, Any]] = {
    "many_to_many": {"semantics": "svd"}, "semantic_center": {"quantised_centers": 4},
}


@pytest.mark.parametrize("loss", [name for name in LOSSES if name != "order"])  # which needs order embeddings
def test_every_loss_trains_it(loss: str, make: Make) -> None:
    learner = learner_of(make(loss={"name": loss} | OF_A_LOSS.get(loss, {}), batch_size=6))
    before = {name: value.clone() for name, value in learner.network.state_dict().items()}
    learner.loss.start_epoch(0)
    result = first_step(learner.trial, learner, epoch=0.0)
    assert result.loss.isfinite()
    assert result.gradient_norm.isfinite()
    after = learner.network.state_dict()
    for part in ("vision_model", "text_model", "visual_projection", "text_projection"):
        assert any(part in name and not torch.equal(value, after[name]) for name, value in before.items())


@pytest.mark.parametrize("settings", [{}, {"image_layers": 0, "text_layers": 1}, {"crop_low": 0.5}], ids=str)
def test_a_trial_continued_in_the_middle_of_an_epoch_is_the_same_trial(
    settings: dict[str, Any], make: Make, tmp_path: Path
) -> None:
    trial = make(**settings, validate_every_steps=4, epochs=1.5)
    whole, resumed = train(trial, tmp_path / "whole"), advanced_anew(trial, tmp_path / "broken")
    assert resumed.number == 4
    curves = [[(p.m_recall, p.metrics["train_loss"]) for p in each.history] for each in (whole, resumed)]
    assert curves[0] == curves[1]
    assert whole.best_path.read_bytes() == resumed.best_path.read_bytes()


def changed(trial: TrialSpec) -> set[str]:
    """Names of the parameters that a training changes."""
    before = fresh_network(trial, seed=0)[0].state_dict()
    learner = learner_of(trial, seed=0)
    start = {name: value.clone() for name, value in learner.network.state_dict().items()}
    assert start.keys() == before.keys()
    batches = TrainingBatches(trial, fresh_network(trial)[1], CPU)
    batches.fix_images(learner.network)
    learner.set_epoch(0.0)
    learner.step(batches.take(0))
    batches.close()
    after = learner.network.state_dict()
    return {name for name, value in start.items() if not torch.equal(value, after[name])}


def test_a_frozen_tower_does_not_change_and_its_projection_does(make: Make) -> None:
    found = changed(make(image_layers=0))
    assert not any("vision_model" in name for name in found)
    assert "towers.body.visual_projection.weight" in found
    assert any("text_model.embeddings" in name for name in found)


def test_the_last_layers_train_with_all_behind_them(make: Make) -> None:
    found = changed(make(image_layers=1, text_layers=2))
    assert any("vision_model.encoder.layers.2." in name for name in found)
    assert any("vision_model.post_layernorm" in name for name in found)
    assert any("text_model.encoder.layers.1." in name for name in found)
    assert any("text_model.final_layer_norm" in name for name in found)
    frozen = ("vision_model.encoder.layers.1.", "vision_model.embeddings", "text_model.encoder.layers.0.",
              "text_model.embeddings")
    assert not any(part in name for name in found for part in frozen)


def test_rates_decay_from_layer_to_layer_and_every_parameter_is_in_one_group(make: Make) -> None:
    network, _ = fresh_network(make(layer_decay=0.5, image_rate_factor=0.1, text_layers=0))
    factors = {
        name: group.factor for group in network.parameter_groups() if group.start_epoch == 0
        for name, value in network.named_parameters() if any(value is each for each in group.parameters)
    }
    vision = "towers.body.vision_model."
    assert factors["towers.body.visual_projection.weight"] == 1
    assert factors[f"{vision}post_layernorm.weight"] == pytest.approx(0.1)
    assert factors[f"{vision}encoder.layers.2.layer_norm1.weight"] == pytest.approx(0.05)
    assert factors[f"{vision}encoder.layers.0.layer_norm1.weight"] == pytest.approx(0.0125)
    assert factors[f"{vision}embeddings.patch_embedding.weight"] == pytest.approx(0.00625)
    assert not any("text_model" in name for name in factors)
    network, _ = fresh_network(make(image_layers=1, layer_decay=0.5))
    grouped = [id(value) for group in network.parameter_groups() for value in group.parameters]
    assert sorted(grouped) == sorted(map(id, network.parameters()))


def test_more_layers_than_there_are_is_refused(make: Make) -> None:
    with refused("VSE-N063", by=ConfigError, setting="text_layers", got=4, has=3):
        fresh_network(make(text_layers=4))


def test_two_kinds_of_towers_are_refused() -> None:
    plain = {"name": "dual_encoder", "model": "one", "text_model": "two"}
    with refused("VSE-N061", by=ConfigError, setting="text_model"):
        parse_spec(plain, DualEncoderSpec, where="network")


def test_vectors_of_a_frozen_tower_are_computed_once_and_shared(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[int] = []
    process = image_processors.processed
    monkeypatch.setattr(
        "vsetune.data.batches.pixels.processed", lambda *items, **more: decoded.append(1) or process(*items, **more)
    )
    first = make(image_layers=0, epochs=1.0)
    data = _copied(first.data.path, tmp_path)
    train(_at(first, data), tmp_path / "first")
    once = len(decoded)
    assert once == 21 + 12  # photographs of both splits, for all batches and all validations
    train(_at(make(image_layers=0, loss={"name": "siglip"}, epochs=1.0), data), tmp_path / "second")
    assert len(decoded) == once


def test_a_training_on_vectors_is_that_on_photographs(make: Make, tmp_path: Path, monkeypatch: Any) -> None:
    trial = make(image_layers=0, epochs=1.0, validate_every_steps=2)
    found = train(trial, tmp_path / "vectors").history
    monkeypatch.setattr(DualEncoderSpec, "has_constant_images", False)
    expected = train(trial, tmp_path / "photographs").history
    for one, other in zip(found, expected, strict=True):
        assert one.m_recall == pytest.approx(other.m_recall)
        assert one.metrics["train_loss"] == pytest.approx(other.metrics["train_loss"], rel=1e-4)


def test_vectors_of_another_tower_are_another_array(make: Make, tmp_path: Path) -> None:
    save_tiny("clip", tmp_path / "other", seed=5)
    trial = make(image_layers=0)
    network, dataset = fresh_network(trial)
    other, _ = fresh_network(make(image_layers=0, model=str(tmp_path / "other")))
    arrays = [frozen_vectors(each, dataset, "validation", trial=trial, device=CPU) for each in (network, other)]
    assert arrays[0].shape == arrays[1].shape == (12, 16)
    assert not np.allclose(*arrays)


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_the_learned_scale_starts_from_the_weights_and_is_stored_with_them(
    kind: str, make: Make, towers: dict[str, str], tmp_path: Path
) -> None:
    folder = towers[kind]
    trial = make(model=folder, loss={"name": kind, "start": "network"}, epochs=1.0)
    learner = learner_of(trial)
    assert learner.loss.log_scale.item() == pytest.approx(3.1)
    attempt = train(trial, tmp_path)
    held = load_file(attempt.best_path)
    assert float(held["towers.body.logit_scale"]) != pytest.approx(3.1, abs=1e-6)
    point = attempt.history[-1].metrics
    shown = 1 / point["loss_temperature"] if kind == "clip" else point["loss_scale"]
    assert math.exp(float(held["towers.body.logit_scale"])) == pytest.approx(shown, rel=0.1)
    own = make(model=folder, loss={"name": kind})
    assert learner_of(own).loss.log_scale.item() != pytest.approx(3.1)


def test_without_epochs_the_network_is_scored_as_it_starts(make: Make, tmp_path: Path) -> None:
    phases = [{"epochs": 1.0}, {"learning_rate_factor": 0.1}]
    trial = make(epochs=0.0, phases=phases, linear_schedule={"warmup_steps": 50})
    attempt = train(trial, tmp_path)
    (point,) = attempt.history
    assert (point.step, point.epoch, point.pairs_seen) == (0, 0.0, 0)
    network, dataset = fresh_network(trial)
    start = evaluate(network.eval(), dataset, "validation", trial=trial, device=CPU)
    recalls = {"m_recall": point.m_recall} | {name: point.metrics[name] for name in start if name in point.metrics}
    assert recalls == pytest.approx(start)
    summary = attempt.finish()
    tested = evaluate(network, dataset, "test", trial=trial, device=CPU)
    assert {name: summary[f"test_{name}"] for name in tested} == pytest.approx(tested)
    assert summary["epochs_to_best"] == summary["epochs"] == 0
    assert "seconds_per_epoch" not in summary
    assert all(torch.equal(value, network.state_dict()[name]) for name, value in load_file(attempt.best_path).items())
    assert open_attempt(trial, tmp_path).is_finished


def test_activation_checkpointing_gives_the_same_curve(make: Make, tmp_path: Path) -> None:
    curves = [
        [point.metrics["train_loss"] for point in train(
            make(epochs=1.0, activation_checkpointing=is_on), tmp_path / str(is_on)
        ).history]
        for is_on in (False, True)
    ]
    assert curves[0] == pytest.approx(curves[1], rel=1e-6)


def test_layers_are_the_outer_list_of_a_tower(tmp_path: Path) -> None:
    assert [len(layers_of(save_tiny(kind, tmp_path / kind))) for kind in ("vit", "resnet", "bert")] == [3, 2, 3]


def test_low_rank_updates_alone_train(make: Make) -> None:
    pytest.importorskip("peft", reason="the extra `lora` is not installed")
    found = changed(make(lora_rank=2, image_layers=0))
    towers = {name for name in found if "_model." in name}
    assert towers
    assert all("lora_B" in name and "text_model" in name for name in towers)  # lora_A moves once lora_B is not zero


def test_low_rank_updates_without_peft_name_the_package(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "peft", None)
    with refused("VSE-N009", by=ConfigError, package="peft", extra="lora"):
        fresh_network(make(lora_rank=2))


def _copied(data: str, folder: Path) -> str:
    shutil.copytree(data, folder / "data", ignore=shutil.ignore_patterns("*.npy*"))
    return str(folder / "data")


def _at(trial: TrialSpec, path: str) -> TrialSpec:
    return trial.model_copy(update={"data": trial.data.model_copy(update={"path": path})})
