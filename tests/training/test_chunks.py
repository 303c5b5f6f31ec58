"""A batch encoded in chunks has the loss, the gradients and the curve of the same batch encoded at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from refusals import refused
from trained_here import CPU, learner_of
from wide_courses import DIVISIBLE, course, fitting

from vsetune.config.study.training import TrialSpec
from vsetune.data.batches.batch import Batch
from vsetune.data.stored.dataset import Dataset
from vsetune.errors import ConfigError
from vsetune.training import encoding
from vsetune.training.batches import TrainingBatches
from vsetune.training.step import Learner

CLOSE = {"rtol": 1e-9, "atol": 1e-11}


def require_equal(trial: TrialSpec, other: TrialSpec, *, steps: int) -> None:
    """Asserts equal losses of all steps and equal gradients of the first. Parameters are not compared: where a gradient
    is 0, Adam moves them by the direction of the rounding error."""
    (losses, gradients), (other_losses, other_gradients) = (course(each, steps=steps) for each in (trial, other))
    assert other_losses == pytest.approx(losses, rel=1e-9)
    for gradient, other_gradient in zip(gradients, other_gradients, strict=True):
        torch.testing.assert_close(other_gradient, gradient, **CLOSE)


OF_ALL = {"lmh", "info_nce", "pvse", "pcme", "pcme_pp"}
"""Losses that are tried with every network; all others with VSE++."""


@pytest.mark.parametrize("network", DIVISIBLE)
def test_chunks_change_no_number_of_a_training(network: str, make_trial: Any, small: Any) -> None:
    tried = [(loss, unit) for loss, unit in fitting(network) if network == "vsepp" or loss["name"] in OF_ALL]
    assert tried
    for loss, unit in tried:
        settings = {
            "network": small(network) | DIVISIBLE[network], "loss": loss, "batch_unit": unit, "batch_size": 8,
        }
        try:
            require_equal(make_trial(**settings), make_trial(**settings, chunk_size=3), steps=1)
        except Exception as error:
            error.add_note(f"{network}.{loss['name']}, batches of {unit}")
            raise


@pytest.mark.parametrize(("network", "size"), [("vsepp", 1), ("vsepp", 7), ("vsepp", 100), ("scan", 1), ("scan", 5)])
def test_chunks_of_any_size_fit_odd_batches(network: str, size: int, make_trial: Any, small: Any) -> None:
    """Seven batches of 8 pairs, with the two captions of some images, the last of 2 pairs."""
    settings = {"network": small(network), "loss": {"name": "info_nce", "learned": True}}
    require_equal(make_trial(**settings), make_trial(**settings, chunk_size=size), steps=6)


def test_chunks_do_not_change_the_training_of_a_loss_alone(make_trial: Any, small: Any) -> None:
    settings = {
        "network": small("scan"), "loss": {"name": "info_nce", "learned": True},
        "phases": [{"epochs": 0.5, "trains": "loss"}, {}],
    }
    require_equal(make_trial(**settings), make_trial(**settings, chunk_size=3), steps=5)


SAMPLING = {
    "pvse": {"dropout": 0.5}, "vse_infinity": {"image_mlp": False}, "tags": DIVISIBLE["tags"] | {"dropout": 0.3},
}


@pytest.mark.parametrize("network", SAMPLING)
def test_the_second_encoding_samples_the_numbers_of_the_first(
    network: str, make_trial: Any, small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = make_trial(network=small(network) | SAMPLING[network], loss={"name": "lsh"}, chunk_size=3)
    losses, gradients = course(trial, steps=3)

    def at_once(function: Any, *arguments: Any, **_: Any) -> Any:
        return function(*arguments)

    monkeypatch.setattr(encoding, "checkpoint", at_once)  # one graph of all chunks
    plain_losses, plain_gradients = course(trial, steps=3)
    assert losses == pytest.approx(plain_losses, rel=1e-9)
    for gradient, plain in zip(gradients, plain_gradients, strict=True):
        torch.testing.assert_close(gradient, plain, **CLOSE)


def encoded(trial: TrialSpec, learner: Learner, *, epoch: float) -> torch.Tensor:
    batches = TrainingBatches(trial, Dataset.open(trial.data.path), CPU)
    batch = batches.take(0)
    batches.close()
    rows = torch.arange(batch.pairs).repeat(2)
    twice = Batch(
        batch.images[rows], batch.captions[rows], batch.image_ids[rows], batch.caption_rows[rows],
        batch.caption_ids[rows],
    )
    images, _ = encoding.BatchEncoder(learner.network, trial, CPU, epoch).items(twice)
    return images.vectors


def test_every_chunk_and_every_step_samples_its_own_numbers(make_trial: Any, small: Any) -> None:
    trial = make_trial(network=small("pvse") | {"dropout": 0.5}, chunk_size=8)
    learner = learner_of(trial)
    before = torch.get_rng_state()
    now = encoded(trial, learner, epoch=0.0)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(now[:8], now[8:])  # the same images in two chunks
    assert torch.equal(encoded(trial, learner, epoch=0.0), now)
    assert not torch.equal(encoded(trial, learner, epoch=0.25), now)


def test_no_more_items_than_a_chunk_are_encoded_or_scored_at_once(
    make_trial: Any, small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = make_trial(network=small("scan"), chunk_size=3)
    learner = learner_of(trial)
    sizes: dict[str, list[tuple[int, ...]]] = {"encode_images": [], "encode_captions": [], "similarity": []}

    def spied(name: str) -> Any:
        plain = getattr(learner.network, name)

        def seen(*given: Any) -> Any:
            sizes[name].append(tuple(len(next(iter(vars(each).values()))) for each in given))  # of the first tensor
            return plain(*given)

        return seen

    for name in sizes:
        monkeypatch.setattr(learner.network, name, spied(name))
    batches = TrainingBatches(trial, Dataset.open(trial.data.path), CPU)
    learner.step(batches.take(0))
    batches.close()
    assert sizes["encode_images"] == [(3,), (3,), (2,), (2,), (3,), (3,)]  # the last chunk first in the backward pass
    assert sorted(sizes["encode_captions"]) == sorted(sizes["encode_images"])
    assert sorted(sizes["similarity"]) == sorted(2 * [(n, m) for n in (3, 3, 2) for m in (3, 3, 2)])


@pytest.mark.parametrize(("network", "settings", "module"), [
    ("sgraf_saf", {}, "image_attention.local_norm"), ("sgraf_sgr", {}, "image_attention.local_norm"),
    ("vse_infinity", {}, "region_mlp.norm"), ("vsrn", {}, "graph.0.norm"), ("cgmn", {}, "relations.0.norm"),
    ("mse", {"image_input": "pixels", "backbone": {
        "model": "random", "depths": [1], "widths": [4], "batch_norm": "running", "start_epoch": 1,
    }}, None),
])
def test_networks_that_normalise_over_the_batch_are_refused(
    network: str, settings: dict[str, Any], module: str | None, make_trial: Any, small: Any
) -> None:
    fields = {} if module is None else {"module": module}
    with refused("VSE-T029", by=ConfigError, network=network, key="training.chunk_size", **fields):
        learner_of(make_trial(network=small(network) | settings, chunk_size=3))


def test_a_network_with_fixed_statistics_is_encoded_in_chunks(make_trial: Any, small: Any) -> None:
    cnn = {"model": "random", "depths": [1], "widths": [4], "batch_norm": "frozen"}
    settings = {"network": small("mse") | {"image_input": "pixels", "image_size": 32, "backbone": cnn}}
    require_equal(make_trial(**settings), make_trial(**settings, chunk_size=3), steps=1)


@pytest.mark.parametrize(("network", "settings", "weight"), [
    ("tags", {}, "mlm_weight"), ("vsrn", {"mode": "coco", "graph": "paper"}, "captioning_weight"),
])
def test_networks_with_a_loss_of_their_own_are_refused(
    network: str, settings: dict[str, Any], weight: str, make_trial: Any, small: Any
) -> None:
    with refused("VSE-T030", by=ConfigError, network=network, weight=weight, key="training.chunk_size"):
        learner_of(make_trial(network=small(network) | settings, chunk_size=3))


def test_images_sampled_beside_the_batch_are_refused(make_trial: Any, small: Any) -> None:
    loss = {"name": "irtm", "hardest": 2, "drawn": 4}
    with refused("VSE-T031", by=ConfigError, loss="irtm", key="training.chunk_size"):
        learner_of(make_trial(network=small("scan"), loss=loss, chunk_size=3))


def test_a_training_without_chunks_is_recorded_as_before(make_trial: Any) -> None:
    assert "chunk_size" not in make_trial().training.to_plain()
    assert make_trial(chunk_size=3).fingerprint() != make_trial().fingerprint()
