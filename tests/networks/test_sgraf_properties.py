"""SGRAF: what its scores depend on, how it starts, that it learns."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

from vsetune.errors import DataError
from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.sgraf.network import Sgraf
from vsetune.networks.sgraf.similarity_reasoning import AttentionFiltration, GraphReasoning
from vsetune.networks.sgraf.spec import SgrafSafSpec, SgrafSgrSpec

SMALL: dict[str, Any] = {"embedding_size": 8, "word_size": 5, "similarity_size": 6, "dropout": 0.0}
SPECS = {"saf": SgrafSafSpec, "sgr": SgrafSgrSpec}
BOTH = pytest.mark.parametrize("kind", ["saf", "sgr"])
COUNTS = torch.tensor([6, 2, 4])
LENGTHS = torch.tensor([4, 9, 1, 3, 6])


def make(kind: str, seed: int = 0, **options: Any) -> Sgraf:
    """A network whose biases and normalisations are not at their start, in evaluation mode."""
    torch.manual_seed(seed)
    network = Sgraf(SPECS[kind](**SMALL | options), regions=6, width=7, vocabulary_size=30).double().eval()
    with torch.no_grad():
        for name, value in [*network.named_parameters(), *network.named_buffers()]:
            if value.ndim == 1 and value.is_floating_point():
                value.add_(0.2 * torch.randn_like(value))
            if name.endswith("running_var"):
                value.abs_().add_(0.5)
    return network


def batch() -> tuple[ImageInputs, CaptionInputs]:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(3, 6, 7, generator=generator, dtype=torch.float64)
    tokens = torch.randint(1, 30, (5, 9), generator=generator)
    return ImageInputs(features, COUNTS), CaptionInputs(tokens, LENGTHS)


def scores(network: Sgraf, images: ImageInputs, captions: CaptionInputs) -> Tensor:
    return network.similarity(network.encode_images(images), network.encode_captions(captions))


@BOTH
def test_padding_behind_words_and_regions_changes_nothing(kind: str) -> None:
    images, captions = batch()
    features = images.features[:, :4].clone()
    counts = COUNTS.clamp_max(4)
    plain = scores(make(kind), ImageInputs(features, counts), captions)
    more = pad(features, (0, 0, 0, 2))
    more[torch.arange(6) >= counts[:, None]] = 50.0
    longer = CaptionInputs(pad(captions.tokens, (0, 7), value=3), LENGTHS)
    torch.testing.assert_close(scores(make(kind), ImageInputs(more, counts), longer), plain, rtol=0, atol=1e-12)


@BOTH
def test_a_score_depends_on_its_pair_alone_and_moves_with_it(kind: str) -> None:
    network, (images, captions) = make(kind), batch()
    whole = scores(network, images, captions)
    for i in range(3):
        for j in range(5):
            one = ImageInputs(images.features[i : i + 1], COUNTS[i : i + 1])
            other = CaptionInputs(captions.tokens[j : j + 1], LENGTHS[j : j + 1])
            torch.testing.assert_close(scores(network, one, other)[0, 0], whole[i, j], rtol=0, atol=1e-12)
    order, columns = torch.tensor([2, 0, 1]), torch.tensor([3, 1, 4, 0, 2])
    moved = scores(
        network, ImageInputs(images.features[order], COUNTS[order]),
        CaptionInputs(captions.tokens[columns], LENGTHS[columns]),
    )
    torch.testing.assert_close(moved, whole[order][:, columns], rtol=0, atol=1e-12)


@BOTH
def test_the_order_of_word_states_changes_nothing_that_of_regions_only_after_training(kind: str) -> None:
    trained, (images, captions) = make(kind), batch()
    torch.manual_seed(0)
    fresh = Sgraf(trained._spec, regions=6, width=7, vocabulary_size=30).double().eval()
    full = ImageInputs(images.features, torch.full((3,), 6))
    flipped = ImageInputs(images.features.flip(1), full.counts)
    torch.testing.assert_close(scores(fresh, flipped, captions), scores(fresh, full, captions), rtol=0, atol=1e-12)
    assert not torch.allclose(scores(trained, flipped, captions), scores(trained, full, captions), rtol=0, atol=1e-9)
    regions, words = trained.encode_images(images), trained.encode_captions(captions)
    turned = words.vectors.detach().clone()
    for row, length in zip(turned, LENGTHS, strict=True):
        row[:length] = row[:length].flip(0)
    again = trained.similarity(regions, Encoded(turned, LENGTHS, whole=words.whole))
    torch.testing.assert_close(again, trained.similarity(regions, words), rtol=0, atol=1e-12)


@BOTH
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("images", "regions", "length"), [(1, 1, 1), (1, 6, 1), (2, 1, 3), (3, 6, 4)])
def test_single_words_and_regions_and_images_of_zeros_give_finite_scores_and_gradients(
    kind: str, training: bool, images: int, regions: int, length: int
) -> None:
    torch.manual_seed(0)
    network = Sgraf(SPECS[kind](**SMALL), regions=regions, width=7, vocabulary_size=30).double().train(training)
    features = torch.randn(images, regions, 7, dtype=torch.float64)
    features[0] = 0
    captions = CaptionInputs(torch.full((2, length), 5), torch.tensor([length, 1]))
    found = scores(network, ImageInputs(features, torch.full((images,), regions)), captions)
    found.sum().backward()
    assert found.shape == (images, 2)
    assert torch.isfinite(found).all()
    assert ((found > 0) & (found < 1)).all()
    assert all(torch.isfinite(value.grad).all() for value in network.parameters())
    assert max(value.grad.abs().max() for value in network.parameters()) < 1e3
    assert all(torch.isfinite(value).all() for value in network.buffers())


def test_gates_and_rows_of_edges_sum_to_one_over_real_nodes() -> None:
    torch.manual_seed(0)
    nodes, is_node = torch.randn(2, 3, 4, 6), torch.arange(4) < torch.tensor([[4], [2], [3]])
    filtration, graph = AttentionFiltration(6), GraphReasoning(6, 1)
    gates = filtration.gates(torch.randn(2, 3, 4), is_node, torch.zeros(1), torch.ones(1))
    edges = graph.steps[0].edges(nodes, is_node, readers=4).view(2, 3, 4, 4)
    for found in (gates, *edges.unbind(dim=2)):
        torch.testing.assert_close(found.sum(dim=-1), torch.ones(2, 3))
        assert (found[~is_node.expand(2, 3, 4)] == 0).all()


@BOTH
def test_dropout_acts_in_training_only_and_follows_the_global_seed(kind: str) -> None:
    network, (images, captions) = make(kind, dropout=0.4), batch()
    assert torch.equal(scores(network, images, captions), scores(network, images, captions))
    network.train()

    def draw(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return scores(copy.deepcopy(network), images, captions)

    assert torch.equal(draw(1), draw(1))
    assert not torch.allclose(draw(1), draw(2))


@BOTH
def test_scores_are_float32_under_autocast(kind: str) -> None:
    network, (images, captions) = make(kind).float().train(), batch()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = scores(network, ImageInputs(images.features.float(), COUNTS), captions)
    assert found.dtype == torch.float32


@BOTH
def test_scores_are_identical_after_saving_and_loading(kind: str, tmp_path: Any) -> None:
    network, other = make(kind).train(), make(kind, seed=1)
    scores(network, *batch())  # moves the running statistics
    torch.save(network.state_dict(), tmp_path / "network.pt")
    other.load_state_dict(torch.load(tmp_path / "network.pt", weights_only=True))
    assert torch.equal(scores(network.eval(), *batch()), scores(other, *batch()))


@pytest.mark.slow
@BOTH
def test_thirty_two_random_pairs_are_learned_by_heart(kind: str) -> None:
    torch.manual_seed(0)
    spec = SPECS[kind](embedding_size=32, word_size=16, similarity_size=16, dropout=0.0)
    network = Sgraf(spec, regions=4, width=16, vocabulary_size=50)
    images = ImageInputs(torch.randn(32, 4, 16), torch.full((32,), 4))
    captions = CaptionInputs(torch.randint(5, 50, (32, 6)), torch.full((32,), 6))
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    diagonal = torch.eye(32, dtype=torch.bool)
    for step in range(200):
        found = scores(network, images, captions)
        matched = found.diagonal()
        costs = [(0.2 + found - rows).relu().masked_fill(diagonal, 0) for rows in (matched[:, None], matched)]
        loss = costs[0].amax(dim=1).sum() + costs[1].amax(dim=0).sum() if step > 60 else sum(costs).sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 2.0)
        optimizer.step()
    with torch.no_grad():
        found = scores(network.eval(), images, captions)
    assert (found.argmax(dim=1) == torch.arange(32)).all()
    assert (found.argmax(dim=0) == torch.arange(32)).all()


def test_more_regions_than_the_network_has_statistics_for_are_refused() -> None:
    with pytest.raises(DataError, match="has those of 6, got 7 regions; ingest features with at most 6 regions"):
        make("saf").encode_images(ImageInputs(torch.randn(1, 7, 7).double(), torch.tensor([7])))


def test_maps_start_xavier_uniform_and_without_bias() -> None:
    torch.manual_seed(0)
    network = Sgraf(SgrafSgrSpec(embedding_size=64), regions=6, width=100, vocabulary_size=30)
    bound = (6 / (64 + 256)) ** 0.5
    assert 0.99 * bound < network.local_map.weight.abs().max() <= bound
    assert (network.image_attention.local.bias == 0).all()
    assert network._spec.score == "probability"
