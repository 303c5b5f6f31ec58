"""Scoring all pairs of a split with a network that has no embeddings."""

from __future__ import annotations

import logging
import weakref
from contextlib import closing
from typing import Any

import pytest
import torch
from trained_here import CPU, fresh_network

from vsetune.config.component_specs import NETWORKS, PairCost
from vsetune.data.batches.reader import evaluation_batches
from vsetune.data.stored.dataset import Dataset
from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs
from vsetune.networks.network_base import Network, evaluating
from vsetune.training import validation
from vsetune.training.evaluation import evaluate, evaluate_ensemble
from vsetune.training.validation import (
    LoggedProgress,
    block_shape,
    encode_split,
    pair_scores,
    split_scores,
)

SCORING = [name for name, spec in NETWORKS.items() if spec().kind == "score"]


@pytest.mark.parametrize("captions", [3, 5, 256])
@pytest.mark.parametrize("name", SCORING)
def test_scores_are_those_of_all_captions_at_once_in_the_order_of_the_split(
    name: str, captions: int, make_trial: Any, small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "_CAPTIONS_PER_GROUP", captions)
    trial = make_trial(network=small(name))
    network, dataset = fresh_network(trial)
    with evaluating(network):
        encoded = encode_split(network, dataset, "test", trial=trial, device=CPU)
        found = split_scores(network, encoded, trial=trial).block(slice(None), slice(None))
        with closing(evaluation_batches(dataset, "test", batch_size=12)) as batches:
            (batch,) = [each.to(CPU) for each in batches]
        items = network.encode_images(batch.images), network.encode_captions(batch.captions)
        torch.testing.assert_close(found, network.similarity(*items), rtol=1e-5, atol=1e-6)
    assert network.training
    assert torch.equal(encoded.owner, batch.image_ids[batch.caption_rows])
    if captions == 3:  # twelve short captions stand together, so no padding is compared
        assert [group.vectors.shape[1] for group in encoded.captions] == [6] * 4 + [11] * 4


class Counting(Network):
    """Scores 100 x image + caption; remembers the blocks it was asked for."""

    def __init__(self) -> None:
        super().__init__(NETWORKS["scan"]())
        self.blocks: list[tuple[int, int, int]] = []

    def encode_images(self, images: Any) -> Encoded:
        raise AssertionError("scores are made of items that are encoded already")

    def encode_captions(self, captions: CaptionInputs) -> Encoded:
        raise AssertionError("scores are made of items that are encoded already")

    def similarity(self, images: Encoded, captions: Encoded) -> torch.Tensor:
        self.blocks.append((len(images), len(captions), captions.vectors.shape[1]))
        return 100 * images.vectors[:, :1, 0] + captions.vectors[:, 0, 0]


def items(numbers: range, parts: int) -> Encoded:
    vectors = torch.tensor(numbers).float()[:, None, None].expand(-1, parts, 2)
    return Encoded(vectors, torch.full((len(numbers),), parts))


def cost(*, regions: int, words: int) -> PairCost:
    return PairCost(flops=0, numbers=regions * words)


@pytest.mark.parametrize("budget_bytes", [1, 4 * 6 * 20, 4 * 6 * 1000])
def test_every_pair_is_scored_once_in_blocks_within_the_budget(budget_bytes: int) -> None:
    network, told = Counting(), []
    captions = [items(range(7), 2), items(range(7, 9), 3)]
    scores = pair_scores(
        network, items(range(5), 3), captions, torch.arange(9).flip(0), cost=cost, budget_bytes=budget_bytes,
        report=lambda done, total: told.append((done, total)),
    )
    assert torch.equal(scores, 100 * torch.arange(5.0)[:, None] + torch.arange(9.0).flip(0))
    assert sum(images * columns for images, columns, _ in network.blocks) == 45
    sizes = [4 * images * columns * 3 * words for images, columns, words in network.blocks]
    assert max(sizes) <= budget_bytes or all(block[:2] == (1, 1) for block in network.blocks)
    assert told[-1] == (45, 45)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


@pytest.mark.parametrize(("sizes", "pairs", "shape"), [
    ((50, 256), 0, (1, 1)), ((50, 256), 1, (1, 1)), ((50, 256), 100, (10, 10)), ((50, 256), 40_000, (50, 256)),
    ((5, 256), 100, (5, 20)), ((500, 4), 100, (25, 4)),
])
def test_blocks_are_about_square_until_a_side_is_used_up(
    sizes: tuple[int, int], pairs: int, shape: tuple[int, int]
) -> None:
    assert block_shape(*sizes, pairs=pairs) == shape


def test_long_scoring_is_logged_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    now = iter([0.0, 10.0, 31.0, 40.0, 70.0])
    progress = LoggedProgress("trial t", clock=lambda: next(now))
    with caplog.at_level(logging.INFO, logger=validation.__name__):
        for done in (10, 20, 30, 40):
            progress(done, 40)
    assert len(caplog.records) == 2


def test_scoring_does_not_move_what_training_keeps(make_trial: Any, small: Any) -> None:
    trial = make_trial(network=small("sgraf_saf"))
    network, dataset = fresh_network(trial)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    random_state = torch.get_rng_state()
    evaluate(network, dataset, "test", trial=trial, device=CPU)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random_state)


@pytest.mark.parametrize("similarity", ["matmul", "match_probability"])
def test_gaussians_are_scored_with_the_same_noise_every_time(similarity: str, make_trial: Any, small: Any) -> None:
    trial = make_trial(network=small("pcme") | {"similarity": similarity})
    network, dataset = fresh_network(trial)
    first, second = (evaluate(network, dataset, "test", trial=trial, device=CPU) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_is_scored_by_all_that_can_be_asked_for(name: str, make_trial: Any, small: Any) -> None:
    trial = make_trial(network=small(name))
    trial = trial.model_validate(trial.to_plain() | {"evaluation": {"positive_ranks": True}})
    network, dataset = fresh_network(trial)
    found = evaluate(network, dataset, "test", trial=trial, device=CPU)
    assert found["i2t_mean_worst_rank"] >= found["i2t_mean_positive_rank"] >= found["i2t_mean_rank"]


def test_an_ensemble_ranks_by_the_mean_of_the_scores_of_its_members_and_holds_items_of_one_at_a_time(
    make_trial: Any, small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[weakref.ref[Any]] = []

    def watched(*options: Any, **named: Any) -> Any:
        assert [each() for each in made] == [None] * len(made)
        items = encode_split(*options, **named)
        made.append(weakref.ref(items))
        return items

    trials = [make_trial(network=small(name)) for name in ("sgraf_saf", "sgraf_sgr")]
    members = [(fresh_network(trial, seed=seed)[0], trial) for seed, trial in enumerate(trials)]
    dataset = Dataset.open(trials[0].data.path)
    one, two = (evaluate(network, dataset, "test", trial=trial, device=CPU) for network, trial in members)
    with monkeypatch.context() as patched:
        patched.setattr("vsetune.training.evaluation.encode_split", watched)
        found = evaluate_ensemble(members, dataset, "test", device=CPU)
    assert len(made) == 2
    both = found.ensemble
    assert found.members == [one, two]
    assert evaluate_ensemble([members[0]] * 2, dataset, "test", device=CPU).ensemble == one
    assert both.keys() == one.keys()
    assert both != one
    assert both != two
    assert all(network.training for network, _ in members)


