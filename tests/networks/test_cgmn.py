"""CGMN: its graphs, and what holds of its embeddings whatever the batch. The formulas stand in test_cgmn_loops."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import pad

from vsetune.errors import DataError
from vsetune.networks.cgmn.network import Cgmn, GraphEncoded
from vsetune.networks.cgmn.spec import CgmnSpec
from vsetune.networks.inputs import CaptionInputs, ImageInputs

REGIONS, WIDTH, WORDS = 9, 7, 30
SMALL = {"embedding_size": 6, "word_size": 5}
CASES = {
    "default": CgmnSpec(**SMALL),
    "spatial": CgmnSpec(**SMALL, spatial_graph=True),
    "variants": CgmnSpec(
        **SMALL, spatial_graph=True, region_normalization="feature", edge_weights="cosine", caption_graph="dense",
        caption_statistics="padded",
    ),
}
every_case = pytest.mark.parametrize("spec", CASES.values(), ids=CASES)


def make(spec, *, seed=0):
    torch.manual_seed(seed)
    network = Cgmn(spec, width=WIDTH, vocabulary_size=WORDS).double()
    with torch.no_grad():  # BatchNorm and biases away from their start, so that the blocks do something
        for value in network.parameters():
            value.add_(torch.rand_like(value) * 0.3)
        for name, value in network.named_buffers():
            if "running" in name:
                value.add_(torch.rand_like(value) * 0.5)
    return network.eval()


def draw(batch, *, seed=0, with_boxes=True):
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(1, REGIONS + 1, (batch,), generator=generator)
    features = torch.randn(batch, REGIONS, WIDTH, generator=generator, dtype=torch.float64)
    features = features * (torch.arange(REGIONS) < counts[:, None])[..., None]
    low = torch.rand(batch, REGIONS, 2, generator=generator, dtype=torch.float64) / 2
    boxes = torch.cat((low, low + 0.4), dim=-1) if with_boxes else None
    lengths = torch.randint(1, 9, (batch,), generator=generator)
    tokens = torch.randint(1, WORDS, (batch, 9), generator=generator)
    is_word = torch.arange(9) < lengths[:, None]
    edges = torch.rand(batch, 9, 9, generator=generator) < 0.2
    edges = (edges | edges.mT) & ~torch.eye(9, dtype=torch.bool) & is_word[:, :, None] & is_word[:, None, :]
    return ImageInputs(features, counts, boxes), CaptionInputs(tokens.masked_fill(~is_word, 0), lengths, edges)


def encode(network, drawn):
    return network.encode_images(drawn[0]), network.encode_captions(drawn[1])


def test_node_matching_needs_items_of_training_and_can_be_left_out():
    network, drawn = make(CASES["default"]), draw(3)
    negatives = ~torch.eye(3, dtype=torch.bool)
    assert not any(isinstance(item, GraphEncoded) for item in encode(network, drawn))
    with pytest.raises(TypeError, match="encoded in training mode"):
        network.matching_loss(*encode(network, drawn), negatives)
    without = make(CgmnSpec(**SMALL, matching_weight=0)).train()
    assert without.matching_loss(*encode(without, drawn), negatives).item() == 0
    assert not any(isinstance(item, GraphEncoded) for item in encode(without, drawn))


def test_new_blocks_change_nothing():
    torch.manual_seed(0)
    spec = CgmnSpec(**SMALL, caption_graph="dense")
    network, (images, captions) = Cgmn(spec, width=WIDTH, vocabulary_size=WORDS).double(), draw(4)
    blocks = [*network.relations, network.word_graph]
    assert len(blocks) == 5
    nodes = network.image_nodes(images)
    mapped = network.region_map(images.features) * (images.features.abs().sum(dim=-1, keepdim=True) > 0)
    norms = mapped.norm(dim=1, keepdim=True)
    torch.testing.assert_close(nodes, mapped / norms)
    torch.testing.assert_close(nodes.norm(dim=1), torch.ones(4, 6).double())
    words = [network.words(row[:length]) for row, length in zip(captions.tokens, captions.lengths, strict=True)]
    states = [network.word_gru(row[None])[0][0] for row in words]
    for row, item in zip(network.caption_nodes(captions), states, strict=True):
        torch.testing.assert_close(row[: len(item)], (item[:, :6] + item[:, 6:]) / 2)
        assert (row[len(item) :] == 0).all()


def test_an_edge_of_the_parse_changes_its_caption_alone_and_none_in_a_dense_graph():
    (_, captions) = draw(4, seed=1)
    row = int(captions.lengths.argmax())
    edges = captions.dependencies.clone()
    edges[row, 0, 1] = edges[row, 1, 0] = ~edges[row, 0, 1]
    other = replace(captions, dependencies=edges)
    network, dense = make(CASES["default"]), make(CASES["variants"])
    before, after = network.encode_captions(captions).vectors, network.encode_captions(other).vectors
    is_changed = (before != after).any(dim=1)
    assert is_changed.tolist() == [place == row for place in range(4)]
    assert torch.equal(dense.encode_captions(captions).vectors, dense.encode_captions(other).vectors)


def test_boxes_matter_with_the_spatial_graph_only():
    images, _ = draw(4)
    elsewhere = replace(images, boxes=images.boxes.flip(1))
    plain, spatial = make(CASES["default"]), make(CASES["spatial"])
    assert torch.equal(plain.encode_images(images).vectors, plain.encode_images(elsewhere).vectors)
    assert not torch.allclose(spatial.encode_images(images).vectors, spatial.encode_images(elsewhere).vectors)


def test_regions_without_boxes_are_the_cells_of_a_square_grid():
    network, (images, _) = make(CASES["spatial"]), draw(3, with_boxes=False)
    low = torch.stack((torch.arange(9) % 3, torch.arange(9) // 3), dim=-1).double()
    # boxes of two cells a side overlap those of the eight neighbours by 1/7 at least, and no others
    boxes = torch.cat((low, low + 2), dim=-1).expand(3, 9, 4)
    with_boxes = make(CASES["spatial"].model_copy(update={"box_overlap": 0.1}))
    expected = with_boxes.encode_images(replace(images, boxes=boxes)).vectors
    torch.testing.assert_close(network.encode_images(images).vectors, expected)
    with pytest.raises(DataError, match="got 8 regions without boxes, need boxes or a square grid of cells"):
        network.encode_images(ImageInputs(images.features[:, :8], images.counts.clamp_max(8)))


def test_captions_without_a_parse_are_refused_unless_the_graph_is_dense():
    _, captions = draw(3)
    bare = replace(captions, dependencies=None)
    with pytest.raises(DataError, match="caption_graph: dependencies needs the parses of the captions"):
        make(CASES["default"]).encode_captions(bare)
    assert make(CASES["variants"]).encode_captions(bare).vectors.shape == (3, 6)


def test_padding_stays_out_of_training_too_unless_it_is_counted():
    _, captions = draw(5)
    longer = CaptionInputs(pad(captions.tokens, (0, 7)), captions.lengths, pad(captions.dependencies, (0, 7, 0, 7)))
    network = make(CASES["default"]).train()
    vectors = [network.encode_captions(some).vectors for some in (captions, longer)]
    torch.testing.assert_close(*vectors, rtol=0, atol=1e-12)
    counting = make(CASES["default"].model_copy(update={"caption_statistics": "padded"})).train()
    assert not torch.allclose(counting.encode_captions(captions).vectors, vectors[0])


@every_case
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("is_new", [False, True])
def test_empty_images_and_one_word_give_finite_values_and_bounded_gradients(spec, training, is_new):
    network = make(spec) if not is_new else Cgmn(spec, width=WIDTH, vocabulary_size=WORDS).double()
    network.train(training)
    images = ImageInputs(
        torch.zeros(1, REGIONS, WIDTH, dtype=torch.float64), torch.tensor([0]), torch.zeros(1, REGIONS, 4).double()
    )
    captions = CaptionInputs(torch.tensor([[7]]), torch.tensor([1]), torch.zeros(1, 1, 1, dtype=torch.bool))
    encoded = encode(network, (images, captions))
    total = network.similarity(*encoded).sum()
    if training:
        total = total + network.matching_loss(*encoded, torch.zeros(1, 1, dtype=torch.bool))
    total.backward()
    assert torch.isfinite(total)
    gradients = [value.grad for value in network.parameters() if value.grad is not None]
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
    assert max(gradient.abs().max() for gradient in gradients) < 1e3


def test_the_spatial_graph_leaves_the_start_of_everything_else_alone():
    torch.manual_seed(0)
    plain = Cgmn(CASES["default"], width=WIDTH, vocabulary_size=WORDS).state_dict()
    torch.manual_seed(0)
    spatial = Cgmn(CASES["spatial"], width=WIDTH, vocabulary_size=WORDS).state_dict()
    assert all(torch.equal(plain[name], spatial[name]) for name in plain)
    assert len(spatial) > len(plain)


def test_parameters_start_as_published():
    torch.manual_seed(0)
    network = Cgmn(CgmnSpec(embedding_size=40, word_size=30), width=100, vocabulary_size=500)
    assert 0.0999 < network.words.weight.abs().max() <= 0.1
    bound = (6 / (100 + 40)) ** 0.5
    assert 0.99 * bound < network.region_map.weight.abs().max() <= bound
    assert (network.region_map.bias == 0).all()
    assert len(network.relations) == 4
    assert len(Cgmn(CASES["spatial"], width=WIDTH, vocabulary_size=WORDS).spatial) == 2
