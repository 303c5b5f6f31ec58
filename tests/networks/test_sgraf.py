"""SGRAF: the vectorised path equals plain loops over images, captions and nodes, batch statistics included."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import batch_norm

from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.parts.batch_normalization import SharedBatchNorm
from vsetune.networks.sgraf.network import Sgraf
from vsetune.networks.sgraf.similarity_reasoning import (
    GraphReasoning,
    normalize_regions,
)
from vsetune.networks.sgraf.spec import SgrafSafSpec, SgrafSgrSpec

SMALL: dict[str, Any] = {"embedding_size": 8, "word_size": 5, "similarity_size": 6, "dropout": 0.0}
SPECS = {"saf": SgrafSafSpec, "sgr": SgrafSgrSpec}
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


def unit(vectors: Tensor, network: Sgraf) -> Tensor:
    added = 1e-8 if network._spec.norm == "released" else 0.0
    return vectors / (vectors.square().sum(dim=-1, keepdim=True).sqrt() + added)


def loop_norm(norm: torch.nn.BatchNorm1d, values: Tensor, channel: int = 0) -> Tensor:
    """A list of values of one channel, normalised by torch; moves the running statistics in training."""
    found = slice(channel, channel + 1)
    return batch_norm(
        values.reshape(-1, 1), norm.running_mean[found], norm.running_var[found], norm.weight[found], norm.bias[found],
        training=norm.training,
    ).view_as(values)


def loop_images(network: Sgraf, images: ImageInputs) -> list[tuple[Tensor, Tensor]]:
    """(regions, v*) of every image."""
    attention = network.image_attention
    rows = [unit(network.image_map(x[:n]), network) for x, n in zip(images.features, images.counts, strict=True)]
    local = [list(attention.local(regions)) for regions in rows]
    for index in range(max(map(len, local))):
        having = [one for one in local if len(one) > index]
        normal = loop_norm(attention.local_norm, torch.stack([one[index] for one in having]), index)
        for one, value in zip(having, normal, strict=True):
            one[index] = value
    means = torch.stack([attention.whole(regions.mean(dim=0)) for regions in rows])
    whole = torch.stack([loop_norm(attention.whole_norm, means[:, d], d) for d in range(8)], dim=1)
    found = []
    for regions, parts, one in zip(rows, local, whole, strict=True):
        weights = torch.cat([attention.common(part.tanh() * one.tanh()) for part in parts]).softmax(dim=0)
        found.append((regions, unit(weights @ regions, network)))
    return found


def loop_captions(network: Sgraf, captions: CaptionInputs) -> list[tuple[Tensor, Tensor]]:
    found = []
    for row, length in zip(captions.tokens, captions.lengths, strict=True):
        states, _ = network.gru(network.words(row[:length])[None])
        words = unit((states[0, :, :8] + states[0, :, 8:]) / 2, network)
        attention = network.caption_attention
        mean = attention.whole(words.mean(dim=0)).tanh()
        weights = torch.cat([attention.common(attention.local(word).tanh() * mean) for word in words]).softmax(dim=0)
        found.append((words, unit(weights @ words, network)))
    return found


def loop_nodes(network: Sgraf, image: tuple[Tensor, Tensor], caption: tuple[Tensor, Tensor]) -> Tensor:
    (regions, v), (words, t) = image, caption
    nodes = [unit(network.global_map((v - t).square()), network)]
    clipped = torch.nn.functional.leaky_relu(regions @ words.T, 0.1)
    strengths = torch.stack([unit(row, network) for row in clipped])
    for column, word in zip(strengths.T, words, strict=True):
        attended = unit((9.0 * column).softmax(dim=0) @ regions, network)
        nodes.append(unit(network.local_map((attended - word).square()), network))
    return torch.stack(nodes)


def loop_graph(reasoning: GraphReasoning, nodes: Tensor) -> Tensor:
    for step in reasoning.steps:
        edges = (step.query(nodes) @ step.key(nodes).T).softmax(dim=-1)
        nodes = step.out(edges @ nodes).relu()
    return reasoning.score(nodes[0]).sigmoid()[0]


def loop_filtration(network: Sgraf, nodes: Tensor, normal: Tensor) -> Tensor:
    reasoning = network.reasoning
    gates = normal.sigmoid()
    filtered = (gates / (gates.sum() + 1e-8)) @ nodes
    return reasoning.score(unit(filtered, network) if network._spec.normalize_filtered else filtered).sigmoid()[0]


def loop_scores(network: Sgraf, images: ImageInputs, captions: CaptionInputs) -> Tensor:
    """As the released code: one caption after the other, longest first as its batches are sorted."""
    rows, columns = loop_images(network, images), loop_captions(network, captions)
    nodes = [[loop_nodes(network, image, caption) for image in rows] for caption in columns]
    reasoning, spec = network.reasoning, network._spec
    if isinstance(reasoning, GraphReasoning):
        return torch.stack([torch.stack([loop_graph(reasoning, pair) for pair in pairs]) for pairs in nodes], dim=1)
    order = sorted(range(len(columns)), key=lambda column: -len(columns[column][0]))
    signals = [torch.stack([reasoning.gate(pair)[:, 0] for pair in pairs]) for pairs in nodes]
    if spec.gate_statistics == "pooled":
        flat = loop_norm(reasoning.gate_norm, torch.cat([one.flatten() for one in signals]))
        parts = flat.split([one.numel() for one in signals])
        normal = [part.view_as(one) for part, one in zip(parts, signals, strict=True)]
    else:
        by_column = {column: loop_norm(reasoning.gate_norm, signals[column]) for column in order}
        normal = [by_column[column] for column in range(len(columns))]
    return torch.stack([
        torch.stack([loop_filtration(network, pair, one) for pair, one in zip(pairs, several, strict=True)])
        for pairs, several in zip(nodes, normal, strict=True)
    ], dim=1)


@pytest.mark.parametrize(("kind", "options", "training"), [
    *((kind, {}, training) for kind in SPECS for training in (False, True)),
    *((kind, options, True) for kind, options in (
        ("saf", {"gate_statistics": "pooled"}), ("saf", {"normalize_filtered": False, "map_bias": False}),
        ("sgr", {"steps": 1}), ("sgr", {"map_bias": False}), ("saf", {"norm": "released"}),
        ("sgr", {"norm": "released"}),
    )),
])
def test_scores_gradients_and_running_statistics_equal_plain_loops(
    kind: str, options: dict[str, Any], training: bool
) -> None:
    network, (images, captions) = make(kind, **options).train(training), batch()
    slow_network = copy.deepcopy(network)
    slow, fast = loop_scores(slow_network, images, captions), scores(network, images, captions)
    for (name, ours), loops in zip(network.named_buffers(), slow_network.buffers(), strict=True):
        if not name.endswith("num_batches_tracked"):
            torch.testing.assert_close(ours, loops, rtol=1e-9, atol=1e-9, msg=name)
    upstream = torch.linspace(-1, 1, 15, dtype=torch.float64).view(3, 5)
    assert_equal_gradients(network, slow_network, fast, slow, upstream)


def assert_equal_gradients(network: Sgraf, slow_network: Sgraf, fast: Tensor, slow: Tensor, upstream: Tensor) -> None:
    """Scores, and the gradients of two networks with equal parameters."""
    torch.testing.assert_close(fast, slow, rtol=1e-9, atol=1e-9)
    ours = torch.autograd.grad(fast, list(network.parameters()), upstream)
    loops = torch.autograd.grad(slow, list(slow_network.parameters()), upstream)
    for (name, _), one, other in zip(network.named_parameters(), ours, loops, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9, msg=name)


def test_frozen_maps_get_no_gradient_and_the_rest_its_own() -> None:
    network, (images, captions) = make("sgr"), batch()
    whole = torch.autograd.grad(scores(network, images, captions)[1, 2], network.gru.weight_ih_l0)
    for part in (network.local_map, network.reasoning):
        part.requires_grad_(False)
    scores(network, images, captions)[1, 2].backward()
    assert network.local_map.weight.grad is None
    torch.testing.assert_close(network.gru.weight_ih_l0.grad, whole[0])


def test_region_indices_are_the_channels_of_torchs_batch_normalisation_when_all_regions_are_real() -> None:
    torch.manual_seed(0)
    norm, ours = (kind(6).double() for kind in (torch.nn.BatchNorm1d, SharedBatchNorm))
    values = torch.randn(3, 6, 8, dtype=torch.float64)
    found = normalize_regions(ours, values, torch.ones(3, 6, dtype=torch.bool))
    torch.testing.assert_close(found, norm(values), rtol=0, atol=1e-12)
    for name, value in norm.named_buffers():  # momentum 0.1 of float32 would be 1.5e-9 off
        torch.testing.assert_close(ours.get_buffer(name), value, rtol=0, atol=1e-12)
