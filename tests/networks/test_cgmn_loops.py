"""CGMN: equal to loops written from the equations, forward and gradient."""

from __future__ import annotations

import pytest
import torch

from vsetune.networks.cgmn.network import Cgmn
from vsetune.networks.cgmn.spec import CgmnSpec
from vsetune.networks.inputs import CaptionInputs, ImageInputs

REGIONS, WIDTH, WORDS = 9, 7, 30
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


def linear(layer, vector):
    return layer.weight @ vector + layer.bias


def loop_norm(norm, rows, training):
    """BatchNorm over all vectors of a batch, one list per item."""
    every = [row for item in rows for row in item]
    if training and len(every) > 1:
        mean = sum(every) / len(every)
        variance = sum((row - mean) ** 2 for row in every) / len(every)
    else:
        mean, variance = norm.running_mean, norm.running_var
    return [[(row - mean) / (variance + 1e-5).sqrt() * norm.weight + norm.bias for row in item] for item in rows]


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


@every_case
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_embeddings_and_gradients_equal_plain_loops(spec, training, dtype, tolerance):
    network, (images, captions) = make(spec).to(dtype).train(training), draw(4)
    images = ImageInputs(images.features.to(dtype), images.counts, images.boxes.to(dtype))
    slow_images, _ = loop_images(network, spec, images, training)
    slow_captions, _ = loop_captions(network, spec, captions, training)
    fast = encode(network, (images, captions))
    torch.testing.assert_close(fast[0].vectors, slow_images, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(fast[1].vectors, slow_captions, rtol=tolerance, atol=tolerance)
    weights = torch.randn(2, 4, spec.embedding_size, dtype=dtype)
    gradients = [
        torch.autograd.grad((weights[0] * found).sum() + (weights[1] * texts).sum(), list(network.parameters()))
        for found, texts in ((fast[0].vectors, fast[1].vectors), (slow_images, slow_captions))
    ]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_node_matching_and_its_gradient_equal_plain_loops(dtype, tolerance):
    spec = CgmnSpec(**SMALL, matching_weight=0.5, matching_margin=0.3)
    network, (images, captions) = make(spec).to(dtype).train(), draw(4)
    images = ImageInputs(images.features.to(dtype), images.counts, images.boxes.to(dtype))
    negatives = ~torch.eye(4, dtype=torch.bool)
    negatives[0, 2] = negatives[2, 0] = False
    _, regions = loop_images(network, spec, images, True)
    _, words = loop_captions(network, spec, captions, True)
    scores = loop_matching(regions, words)
    slow = 0.5 * sum(
        (0.3 + scores[i, j] - scores[i, i]).relu() + (0.3 + scores[i, j] - scores[j, j]).relu()
        for i in range(4) for j in range(4) if negatives[i, j]
    )
    fast = network.matching_loss(*encode(network, (images, captions)), negatives)
    torch.testing.assert_close(fast, slow, rtol=tolerance, atol=tolerance)
    for one, other in zip(
        *(torch.autograd.grad(loss, list(network.parameters()), materialize_grads=True) for loss in (fast, slow)),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)
