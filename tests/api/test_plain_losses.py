"""Losses for other people's loops: the same number as the trainer's on its batches, and what a batch may look like."""

from __future__ import annotations

import pydoc
from typing import Any

import pytest
import torch
from loss_values import LOSS_CLASSES, close, unit

import vsetune
from vsetune.config.component_specs import LOSSES, NETWORKS
from vsetune.config.study.cells import build_trial, resolve_cells
from vsetune.data.stored.dataset import Dataset
from vsetune.home.paths import under_home
from vsetune.losses.plain_loss import PlainLoss
from vsetune.networks.inputs import CaptionInputs
from vsetune.training.batches import TrainingBatches
from vsetune.training.step import Learner

CPU = torch.device("cpu")
DATA = {"path": "data/scenes"}


def learner_of(name: str, images: str) -> tuple[Learner, Any]:
    """A fresh learner of the loss on the small data set, and its first batch."""
    order = {"network": {"similarity": "order", "absolute": True}} if LOSSES[name].scores == {"order"} else {}
    study = vsetune.Study(
        study="one", data={"path": under_home(DATA["path"])}, baseline=name, losses=[{"name": name, **order}],
        networks=[{"name": "vsepp", "fixed": {"embedding_size": 16, "word_size": 8}}],
        training={"epochs": 2, "batch_size": 24, "batch_unit": images, "learning_rate": 1e-3},
    )
    (cell,) = resolve_cells(study.spec, where="test")
    trial = build_trial(study.spec, cell, cell.defaults(), trial="one", seed=0)
    dataset = Dataset.open(trial.data.path)
    torch.manual_seed(0)
    learner = Learner.build(trial, dataset, CPU)
    batches = TrainingBatches(trial, dataset, CPU)
    batch = batches.take(0)
    batches.close()
    return learner, batch


@pytest.mark.parametrize(("name", "images"), [
    *((name, "pairs") for name in sorted(LOSSES)),
    *((name, "images") for name, spec in sorted(LOSSES.items()) if spec.several_positives),
])
def test_a_loss_gives_the_number_of_the_trainer(name: str, images: str, with_data) -> None:
    learner, batch = learner_of(name, images)
    words: CaptionInputs = batch.captions
    with torch.no_grad():
        ours = learner.network.encode_images(batch.images).vectors
        theirs = learner.network.encode_captions(words).vectors
        scores = learner.network.similarity(*(vsetune.Encoded(each) for each in (ours, theirs)))
    sizes = {"embedding_size": 16, "images": learner.context.concepts}
    plain: PlainLoss = LOSS_CLASSES[name](**sizes)
    plain.loss.load_state_dict(learner.loss.state_dict())
    more = {
        "image_ids": batch.image_ids, "caption_rows": batch.caption_rows, "semantic_vectors": batch.semantic_vectors,
    }
    given = {"scores": scores} if LOSSES[name].scores == {"order"} else {}
    torch.manual_seed(5)
    value = plain(ours, theirs, **given, **more)
    torch.manual_seed(5)
    expected = learner.step(batch).loss
    assert float(expected) > 0
    close(value, expected, tolerance=1e-5 * max(1.0, abs(float(expected))))


def test_scores_alone_give_the_number_of_embeddings() -> None:
    images, captions = (unit(6, 5, seed=seed) for seed in (1, 2))
    loss = vsetune.losses.LMH(margin=0.3)
    scores = images @ captions.T
    matched = scores.diagonal()
    by_hand = 0.0
    for i in range(6):
        others = [j for j in range(6) if j != i]
        by_hand += max(0.0, *(0.3 + float(scores[i, j] - matched[i]) for j in others))
        by_hand += max(0.0, *(0.3 + float(scores[j, i] - matched[i]) for j in others))
    close(loss(images, captions), by_hand)
    close(loss(scores), by_hand)
    close(loss(scores=scores), by_hand)
    close(loss(3 * images, 0.5 * captions), by_hand)
    one_image = loss(scores, image_ids=torch.zeros(6, dtype=torch.int64))
    close(one_image, 0.0)  # nothing is wrong where all captions are of one image


def test_it_is_a_module_with_gradient_schedule_and_settings() -> None:
    images, captions = (unit(4, 3, seed=seed).requires_grad_() for seed in (1, 2))
    loss = vsetune.losses.InfoNCE(softmax_temperature=0.1, learned=True)
    loss(images, captions).backward()
    assert images.grad.abs().sum() > 0
    assert [name for name, _ in loss.named_parameters()] == ["loss.log_scale"]
    warming = vsetune.losses.LMH(warmup_epochs=1)
    first = warming(images, captions).item()
    warming.start_epoch(1)
    assert warming(images, captions).item() < first
    assert "margin=0.25" in repr(vsetune.losses.LMH(margin=0.25))


@pytest.mark.parametrize(("components", "registry"), [("losses", LOSSES), ("networks", NETWORKS)])
def test_the_help_of_every_class_shows_its_settings(components, registry) -> None:
    package = getattr(vsetune, components)
    for name in package.__all__[:-1]:
        spec, found = registry[getattr(package, name).component], pydoc.plain(pydoc.render_doc(getattr(package, name)))
        assert spec.source in found
        for setting, field in spec.model_fields.items():
            assert setting == "name" or f"{setting} = {field.default!r}: {field.description}" in found
            assert setting == "name" or f"{setting}: " in found.partition("\n\n")[2].partition("\n")[2].split("\n")[0]


def test_several_embeddings_are_compared_by_their_closest_pair() -> None:
    images, captions = unit(3, 2, 4, seed=1), unit(3, 2, 4, seed=2)
    scores = torch.stack([
        torch.stack([max((images[i] @ captions[j].T).flatten()) for j in range(3)]) for i in range(3)
    ])
    loss = vsetune.losses.PVSE(diversity_weight=0, discrepancy_weight=0)
    close(loss(images, captions), loss(scores))


def test_recall_of_a_matrix() -> None:
    scores = torch.eye(20)
    scores[0, 0] = -1.0  # the last for both queries
    found = vsetune.metrics.recall(scores)
    assert (found.i2t_r1, found.t2i_r10) == (95.0, 95.0)
    twice = vsetune.metrics.recall(torch.eye(12).repeat_interleave(2, dim=1))
    assert (twice.i2t_r1, twice.captions) == (100.0, 24)
    owner = torch.arange(12).flip(0)
    assert vsetune.metrics.recall(torch.eye(12).flip(1), owner).rsum == 600.0
