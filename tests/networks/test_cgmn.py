"""CGMN: equal to loops written from the equations, forward and gradient."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from plain_networks import (
    VOCABULARY,
    WIDTH,
    assert_same_with_gradients,
    draw,
    encode,
    linear,
    loop_batch_norm,
    make,
)

from vsetune.networks.cgmn.network import (
    Cgmn,
    GraphEncoded,
    neighbouring,
    node_matching_loss,
    overlapping,
)
from vsetune.networks.cgmn.spec import CgmnSpec
from vsetune.networks.inputs import ImageInputs

SMALL = {"embedding_size": 6, "word_size": 5}
CASES = {
    "default": CgmnSpec(**SMALL),
    "spatial": CgmnSpec(**SMALL, spatial_graph=True),
    "released norm": CgmnSpec(**SMALL, spatial_graph=True, norm="released"),
    "variants": CgmnSpec(
        **SMALL, spatial_graph=True, region_normalization="feature", edge_weights="cosine", caption_graph="dense",
        caption_statistics="padded",
    ),
}


def loop_norm(norm, rows, training):
    """BatchNorm over all vectors of a batch, one list per item."""
    flat = iter(loop_batch_norm(norm, [row for item in rows for row in item], training=training))
    return [[next(flat) for _ in item] for item in rows]


def loop_block(block, nodes, edges, training, padding=0):
    """x_a + BN(W sum_b w_ab g(x_b)) of lists of nodes; padding: rows of W's bias that BN counts too."""
    changes = []
    for item, weight in zip(nodes, edges, strict=True):
        gathered = [
            sum(weight(a, b) * linear(block.g, x_b) for b, x_b in enumerate(item)) for a in range(len(item))
        ]
        changes.append([linear(block.w, y) for y in gathered])
    normed = loop_norm(block.norm, [*changes, [block.w.bias] * padding], training)
    pairs = zip(nodes, normed[: len(nodes)], strict=True)
    return [[x + change for x, change in zip(*pair, strict=True)] for pair in pairs]


def learned_edges(block, item):
    return lambda a, b: linear(block.theta, item[a]) @ linear(block.phi, item[b]) / len(item)


def loop_normalised(nodes, over):
    if over == "feature":
        return [[row / row.norm() for row in item] for item in nodes]
    return [[row / sum(other**2 for other in item).sqrt() for row in item] for item in nodes]


def given_edges(item, kind, is_edge):
    def weight(a, b):
        if not is_edge(a, b):
            return 0.0
        product = item[a] @ item[b]
        return product / item[b].norm() ** 2 if kind == "released" else product / item[a].norm() / item[b].norm()
    return weight


def loop_overlap(one, other):
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    shared = max(0.0, width) * max(0.0, height)
    return shared / ((one[2] - one[0]) * (one[3] - one[1]) + (other[2] - other[0]) * (other[3] - other[1]) - shared)


def loop_images(network, spec, images, training):
    items = [row[:count] for row, count in zip(images.features, images.counts, strict=True)]
    mapped = [[linear(network.region_map, x) for x in item] for item in items]
    nodes = start = loop_normalised(mapped, spec.region_normalization)
    for block in network.relations:
        nodes = loop_block(block, nodes, [learned_edges(block, item) for item in nodes], training)
    if spec.spatial_graph:
        edges = [
            given_edges(item, spec.edge_weights, lambda a, b, at=at: a == b or loop_overlap(at[a], at[b]) >= 0.4)
            for item, at in zip(start, images.boxes.tolist(), strict=True)
        ]
        along = start
        for block in network.spatial:
            along = loop_block(block, along, edges, training)
        mean = [[(x + y) / 2 for x, y in zip(*pair, strict=True)] for pair in zip(nodes, along, strict=True)]
        nodes = loop_normalised(mean, spec.region_normalization)
    states = [[network.image_gru(torch.stack(item)[None])[1][0, 0]] for item in nodes]
    found = torch.stack([item[0] for item in loop_norm(network.image_norm, states, training)])
    return found / found.norm(dim=1, keepdim=True), nodes


def loop_captions(network, spec, captions, training):
    size, items, edges = spec.embedding_size, [], []
    for row, length, links in zip(captions.tokens, captions.lengths, captions.dependencies, strict=True):
        states = network.word_gru(network.words(row[:length])[None])[0][0]
        items.append(list((states[:, :size] + states[:, size:]) / 2))
        joined = links | torch.eye(9, dtype=torch.bool) | (spec.caption_graph == "dense")
        edges.append(given_edges(items[-1], spec.edge_weights, lambda a, b, joined=joined: bool(joined[a, b])))
    longest = max(len(item) for item in items)
    padding = sum(longest - len(item) for item in items) if spec.caption_statistics == "padded" else 0
    nodes = loop_block(network.word_graph, items, edges, training, padding)
    found = torch.stack([network.caption_gru(torch.stack(item)[None])[1][0, 0] for item in nodes])
    return found / found.norm(dim=1, keepdim=True), nodes


def loop_matching(regions, words):
    def cosine(x, y):
        return x @ y / x.norm() / y.norm()

    return torch.stack([
        torch.stack([
            sum(torch.stack([cosine(word, region) for region in image]).max() for word in caption) for caption in words
        ])
        for image in regions
    ])


@pytest.mark.parametrize(("name", "training"), [
    ("default", True), ("spatial", True), ("released norm", True), ("variants", True), ("variants", False),
])
def test_embeddings_and_gradients_equal_plain_loops(name, training):
    network, (images, captions) = make(CASES[name]).train(training), draw(3, with_boxes=True)
    slow = [loop_images(network, CASES[name], images, training)[0],
            loop_captions(network, CASES[name], captions, training)[0]]
    assert_same_with_gradients(network, [items.vectors for items in encode(network, (images, captions))], slow)


def test_node_matching_and_its_gradient_equal_plain_loops():
    spec = CgmnSpec(**SMALL, matching_weight=0.5, matching_margin=0.3)
    network, (images, captions) = make(spec).train(), draw(3)
    negatives = ~torch.eye(3, dtype=torch.bool)
    negatives[0, 2] = negatives[2, 0] = False
    scores = loop_matching(loop_images(network, spec, images, True)[1], loop_captions(network, spec, captions, True)[1])
    slow = 0.5 * sum(
        (0.3 + scores[i, j] - scores[i, i]).relu() + (0.3 + scores[i, j] - scores[j, j]).relu()
        for i in range(3) for j in range(3) if negatives[i, j]
    )
    fast = network.matching_loss(*encode(network, (images, captions)), negatives)
    assert_same_with_gradients(network, [fast], [slow])


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
    network, (images, captions) = Cgmn(spec, width=WIDTH, vocabulary_size=VOCABULARY).double(), draw(4)
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


def test_regions_without_boxes_are_the_cells_of_a_square_grid():
    network = make(CASES["spatial"])
    images = ImageInputs(torch.randn(3, 9, WIDTH).double(), torch.tensor([9, 4, 7]))
    low = torch.stack((torch.arange(9) % 3, torch.arange(9) // 3), dim=-1).double()
    # boxes of two cells a side overlap those of the eight neighbours by 1/7 at least, and no others
    boxes = torch.cat((low, low + 2), dim=-1).expand(3, 9, 4)
    with_boxes = make(CASES["spatial"].model_copy(update={"box_overlap": 0.1}))
    expected = with_boxes.encode_images(replace(images, boxes=boxes)).vectors
    torch.testing.assert_close(network.encode_images(images).vectors, expected)


def test_node_matching_by_hand():
    # negatives of row 0 / column 1: margin 0.2, entry 0.9 against 1.0 and 0.8; the other entry is far below
    scores = torch.tensor([[1.0, 0.9], [0.0, 0.8]])
    loss = node_matching_loss(scores, ~torch.eye(2, dtype=torch.bool), margin=0.2)
    assert loss.item() == pytest.approx((0.2 + 0.9 - 1.0) + (0.2 + 0.9 - 0.8))


def test_a_cell_of_a_grid_joins_its_eight_neighbours_and_itself():
    near = neighbouring(3, torch.device("cpu"))
    assert near[4].all()
    assert near[0].nonzero().flatten().tolist() == [0, 1, 3, 4]
    assert near[5].nonzero().flatten().tolist() == [1, 2, 4, 5, 7, 8]


def test_boxes_that_share_enough_are_joined():
    # the second covers half of the first: 0.5; the third a quarter of it, 1/7 of both; the last has no area
    boxes = torch.tensor([[[0, 0, 2, 2], [0, 0, 2, 1], [1, 1, 3, 3], [1, 1, 1, 1]]], dtype=torch.float32)
    expected = torch.eye(4, dtype=torch.bool)
    expected[0, 1] = expected[1, 0] = True
    assert torch.equal(overlapping(boxes, 0.5)[0], expected)
    assert torch.equal(overlapping(boxes, 0.51)[0], torch.eye(4, dtype=torch.bool))
