"""Negatives drawn from the data set: which are drawn, which are kept, and the loss against plain loops."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from plain_tags import drawn as all_items
from plain_tags import gradients, make, plain_score
from pydantic import ValidationError
from refusals import refused
from torch import Tensor

from vsetune.config.component_specs import NETWORKS
from vsetune.config.study.compatibility import mismatch
from vsetune.config.study.training import TrainingSpec
from vsetune.data.batches.batch import Batch
from vsetune.data.stored.dataset import Dataset
from vsetune.errors import ConfigError
from vsetune.losses.irtm.spec import IrtmSpec
from vsetune.losses.loss_base import LossInputs
from vsetune.losses.loss_building import build_loss
from vsetune.networks.tags.network import Tags
from vsetune.training.batches import TrainingBatches, sampled_images, with_one_caption_each
from vsetune.training.drawn_negatives import Miner
from vsetune.training.step import Learner

CPU = torch.device("cpu")
BATCH, DRAWN = [(0, 0), (1, 1)], [(2, 2), (0, 3), (1, 0), (2, 1)]
"""(image, caption) of the items of `plain_tags`; ids of images are their places there."""


def batch_of(pairs: list[tuple[int, int]]) -> Batch:
    images, captions = all_items()
    rows, columns = (torch.tensor(numbers) for numbers in zip(*pairs, strict=True))
    return Batch(images[rows], captions[columns], rows, torch.arange(len(pairs)), columns)


def loss_of(network: Tags, spec: IrtmSpec) -> Tensor:
    batch, drawn = batch_of(BATCH), batch_of(DRAWN)
    images = network.encode_images(batch.images)
    captions = network.encode_captions(batch.captions)
    found = Miner(network, TrainingSpec(batch_size=3), spec.hardest).hardest_of(drawn, batch, images, captions)
    similarity, ids = network.similarity(images, captions), batch.image_ids
    return build_loss(spec)(LossInputs(similarity, ids, ids, batch.caption_rows, drawn=found)).value


def plain_loss(network: Tags, spec: IrtmSpec) -> Tensor:
    captions = all_items()[1]

    def score(image: int, caption: int) -> Tensor:
        return plain_score(network, captions.tokens[caption, : int(captions.lengths[caption])].tolist(), image)

    total = torch.zeros((), dtype=torch.float64)
    for image, caption in BATCH:
        others = [pair for pair in BATCH + DRAWN if pair[0] != image]
        for negatives in ([score(image, other) for _, other in others], [score(other, caption) for other, _ in others]):
            hardest = sorted(negatives, key=lambda value: -value.item())[: spec.hardest]
            hinges = [(spec.margin - score(image, caption) + each).clamp(min=0) for each in hardest]
            total = total + torch.stack(hinges).mean() / len(BATCH)
    return total


@pytest.mark.parametrize("hardest", [1, 3, 31])
def test_the_triplet_with_drawn_negatives_is_that_of_plain_loops_over_batch_and_draw(hardest: int) -> None:
    network, spec = make(mlm_weight=0).train(), IrtmSpec(hardest=hardest, drawn=4, margin=0.4)
    found, expected = loss_of(network, spec), plain_loss(network, spec)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
    assert found > 0
    torch.testing.assert_close(gradients(network, found), gradients(network, expected), rtol=1e-9, atol=1e-9)


def test_negatives_are_looked_for_without_dropout_and_trained_on_with_it() -> None:
    network, batch, drawn = make(mlm_weight=0, dropout=0.5).train(), batch_of(BATCH), batch_of(DRAWN)
    encoded = network.encode_images(batch.images), network.encode_captions(batch.captions)
    miner = Miner(network, TrainingSpec(batch_size=3), 1)
    first, second = (miner.hardest_of(drawn, batch, *encoded) for _ in range(2))
    assert network.training
    kept = first.caption_similarity.isfinite()
    assert torch.equal(kept, second.caption_similarity.isfinite())
    assert not torch.equal(first.caption_similarity[kept], second.caption_similarity[kept])
    assert kept.sum(dim=1).tolist() == [1, 1]
    expected = network.eval().similarity(
        network.encode_images(batch.images), network.encode_captions(drawn.captions)
    )
    allowed = expected.masked_fill(batch.image_ids[:, None] == drawn.image_ids, -1)
    assert torch.equal(kept.nonzero()[:, 1], allowed.argmax(dim=1))


@pytest.mark.parametrize("network", [name for name, spec in NETWORKS.items() if spec().kind == "score"])
def test_every_network_that_scores_pairs_trains_with_drawn_negatives(
    network: str, make_trial: Any, small: Any, data_path: str
) -> None:
    trial = make_trial(network=small(network), loss={"name": "irtm", "hardest": 2, "drawn": 6})
    dataset = Dataset.open(data_path)
    batches, learner = TrainingBatches(trial, dataset, CPU), Learner.build(trial, dataset, CPU)
    result = learner.step(batches.take(0), batches.drawn(0, phase=0))
    batches.close()
    assert result.loss > 0
    assert result.gradient_norm > 0
    with pytest.raises(ConfigError, match="6 images"):
        learner.step(batches.take(0))
    batches.close()


def test_images_are_drawn_once_a_step_in_an_order_of_their_own_and_the_same_after_an_interruption(
    make_trial: Any, data_path: str
) -> None:
    trial, dataset = make_trial(), Dataset.open(data_path)
    straight = sampled_images(trial, dataset, CPU, 5)
    torch.manual_seed(3)
    taken = [with_one_caption_each(straight.take(step)) for step in range(9)]  # four steps a round
    ids = [batch.image_ids.tolist() for batch in taken]
    assert all(len(set(each)) == 5 for each in ids)
    assert len({number for each in ids[:4] for number in each}) == 20
    assert ids[0] != ids[4] != ids[8]
    for batch in taken:
        assert torch.equal(batch.caption_ids // 2, batch.image_ids)  # two captions an image, one beside another
        assert batch.captions.tokens.shape[1] == batch.captions.lengths.max()
    assert {number % 2 for batch in taken for number in batch.caption_ids.tolist()} == {0, 1}
    continued = sampled_images(trial, dataset, CPU, 5)
    assert [continued.take(step).image_ids.tolist() for step in (6, 7, 8)] == ids[6:]
    straight.close(), continued.close()


def test_more_images_than_there_are_is_told_before_anything_trains(make_trial: Any, small: Any, data_path: str) -> None:
    trial = make_trial(network=small("tags"), loss={"name": "irtm", "drawn": 22})
    with refused("VSE-T006", by=ConfigError, key="loss.drawn", got=22, available=21, unit="images"):
        TrainingBatches(trial, Dataset.open(data_path), CPU)


def test_networks_that_embed_are_sent_to_the_memory() -> None:
    reasons = [
        mismatch(spec(), IrtmSpec(drawn=399), batch_unit="pairs")
        for spec in NETWORKS.values() if spec().kind != "score"
    ]
    assert reasons
    assert all("use memory_size in place of drawn" in (reason or "") for reason in reasons)


@pytest.mark.parametrize(("settings", "told"), [
    ({"memory_size": 20}, "memory_size 20"), ({"warmup_epochs": 1}, "1 warmup_epochs"),
])
def test_drawn_negatives_beside_a_memory_or_a_warm_up_are_refused(settings: dict[str, int], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        IrtmSpec.model_validate({"drawn": 399, **settings})


def test_a_loss_that_draws_nothing_is_recorded_as_before() -> None:
    assert "drawn" not in IrtmSpec().to_plain()
    assert IrtmSpec.model_validate(IrtmSpec(drawn=399).to_plain()).drawn == 399
