"""TAGS: scores against plain loops, one pair at a time, and every way of computing them against the plain one."""

from __future__ import annotations

import pytest
import torch
from plain_tags import (
    COUNTS,
    LENGTHS,
    VOCABULARY,
    drawn,
    gradients,
    losses_of,
    make,
    plain_score,
)
from torch import Tensor

from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_building import build_network
from vsetune.networks.tags import pair_blocks
from vsetune.networks.tags.joint_encoder import EncoderLayer, EncoderShape, bert_linear, box_places, grid_boxes
from vsetune.networks.tags.network import Tags
from vsetune.networks.tags.spec import TagsSpec

ROWS = torch.tensor([0, 2, 1, 0])


def scores(network: Tags) -> Tensor:
    images, captions = drawn()
    return network.similarity(network.encode_images(images), network.encode_captions(captions))


def test_scores_and_their_gradients_are_those_of_one_pair_at_a_time_in_plain_loops() -> None:
    network = make(mlm_weight=0.0)
    weights = torch.linspace(-1, 1, 12, dtype=torch.float64).view(3, 4)
    captions = [caption[:length].tolist() for caption, length in zip(drawn()[1].tokens, LENGTHS, strict=True)]
    loops = torch.stack([
        torch.stack([plain_score(network, caption, row) for caption in captions]) for row in range(3)
    ])
    torch.testing.assert_close(scores(network), loops, rtol=0, atol=1e-9)
    found, expected = (gradients(network, (weights * value).sum()) for value in (scores(network), loops))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


def test_blocks_that_are_computed_twice_drop_the_same_numbers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    network = make(dropout=0.3).train()
    found = []
    for most in (2**29, 0):
        monkeypatch.setattr(pair_blocks, "_MOST_KEPT", most)
        torch.manual_seed(1)
        found.append(gradients(network, scores(network).square().sum() + added(network)))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-12)


def added(network: Tags) -> Tensor:
    return torch.stack([*losses_of(network, *drawn(), ROWS).values()]).sum()


def test_the_word_embedding_is_also_the_map_to_words_and_stands_once_among_the_parameters() -> None:
    network = make()
    shapes = [tuple(value.shape) for value in network.parameters()]
    assert shapes.count((VOCABULARY, 8)) == 1
    (gradient,) = torch.autograd.grad(losses_of(network, *drawn(), ROWS)["mlm"], [network.inputs.words.weight])
    assert (gradient.abs().sum(dim=1) > 0).all()  # as logits, also words that no caption has


def test_without_its_weight_there_is_no_head_for_masked_words_and_all_else_starts_equal() -> None:
    torch.manual_seed(0)
    with_head = build_network(TagsSpec(size="tiny"), regions=4, width=7, vocabulary_size=20).state_dict()
    torch.manual_seed(0)
    without = build_network(TagsSpec(size="tiny", mlm_weight=0.0), regions=4, width=7, vocabulary_size=20)
    assert not [name for name in without.state_dict() if name.startswith("masked_words")]
    assert all(torch.equal(value, with_head[name]) for name, value in without.state_dict().items())


def test_captions_of_special_words_alone_have_nothing_to_guess() -> None:
    network, (images, _) = make(), drawn()
    captions = CaptionInputs(torch.tensor([[1, 3, 2]]), torch.tensor([3]))
    found = losses_of(network, images, captions, torch.tensor([0]))
    assert {name: value.item() for name, value in found.items()} == {"mlm": 0, "istm": 0, "wod": 0, "woc": 0}


def test_regions_without_boxes_are_cells_of_a_square_grid() -> None:
    assert box_places(grid_boxes(4))[2].tolist() == [0.0, 0.5, 0.5, 1.0, 0.5, 0.5, 0.25]
    network, (images, _) = make(), drawn()
    boxed = ImageInputs(images.features, COUNTS, grid_boxes(4).expand(3, 4, 4))
    bare = ImageInputs(images.features, COUNTS)
    assert torch.equal(network.encode_images(boxed).vectors, network.encode_images(bare).vectors)


@pytest.mark.parametrize(("size", "shape"), [
    ("tiny", (128, 2, 2)), ("minilm", (384, 6, 12)), ("base", (768, 12, 12)), ("large", (1024, 24, 16)),
])
def test_a_size_sets_the_shape_that_is_not_given(size: str, shape: tuple[int, int, int]) -> None:
    spec = TagsSpec.model_validate({"name": "tags", "size": size})
    assert (spec.embedding_size, spec.layers, spec.heads) == shape
    assert TagsSpec.model_validate({"name": "tags", "size": size, "layers": 3}).layers == 3


def test_narrow_layers_start_with_the_gain_of_a_layer_of_berts_base() -> None:
    torch.manual_seed(0)
    layers = {width: bert_linear(width, 64, size=width).weight.detach() for width in (64, 768, 1024)}
    spreads = {width: float(weight.std() * width**0.5) for width, weight in layers.items()}
    assert spreads == pytest.approx({64: 0.02 * 768**0.5, 768: 0.02 * 768**0.5, 1024: 0.02 * 32}, rel=0.05)


def test_where_few_states_ask_attention_without_keys_and_values_is_the_same() -> None:
    torch.manual_seed(0)
    layer = EncoderLayer(EncoderShape(size=32, layers=1, heads=2, inner=64, dropout=0.0)).double()
    states = torch.randn(3, 20, 32, dtype=torch.float64, requires_grad=True)
    mask = (torch.arange(20) < torch.tensor([20, 7, 1])[:, None])[:, None, None]
    found = [way(states[:, :2], states, mask) for way in (layer.read, layer)]
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)
    assert not torch.equal(*found)  # they take different ways
    weights = torch.randn(3, 2, 32, dtype=torch.float64)
    ours, plain = (torch.autograd.grad(each, [states, *layer.parameters()], weights) for each in found)
    torch.testing.assert_close(ours, plain, rtol=0, atol=1e-12)
