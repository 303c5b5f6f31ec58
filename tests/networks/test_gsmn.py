"""GSMN against plain loops over pairs, nodes, neighbours and kernels."""

from __future__ import annotations

import math

import pytest
import torch
from plain_networks import assert_same_with_gradients

from vsetune.networks.gsmn import network as module
from vsetune.networks.gsmn.matching import BoxKernels, matches
from vsetune.networks.gsmn.network import Gsmn, grid_centres
from vsetune.networks.gsmn.spec import GsmnSpec
from vsetune.networks.inputs import CaptionInputs, ImageInputs

WIDTH, VOCABULARY, REGIONS, WORDS = 7, 30, 4, 9
SMALL = {"embedding_size": 12, "word_size": 5, "blocks": 3, "kernels": 2, "hidden_size": 4, "attention_scale": 4.0}
VARIANTS = [
    {"text_graph": graph, "propagation": propagation}
    for graph in ("dense", "sparse")
    for propagation in ("paper", "released")
] + [{"kernel_normalization": "neighbours"}]


def make(*, seed=0, **options):
    torch.manual_seed(seed)
    return Gsmn(GsmnSpec(**(SMALL | options)), width=WIDTH, vocabulary_size=VOCABULARY).double().eval()


def draw_images(number=4, *, counts=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    counts = torch.tensor([4, 1, 3, 2][:number] if counts is None else counts)
    is_real = (torch.arange(REGIONS) < counts[:, None])[..., None]
    features = torch.randn(number, REGIONS, WIDTH, generator=generator, dtype=torch.float64)
    corners = torch.rand(number, REGIONS, 2, 2, generator=generator, dtype=torch.float64).sort(dim=2).values
    return ImageInputs(features * is_real, counts, corners.flatten(2) * is_real)


def draw_captions(number=4, *, seed=0):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([5, 1, 9, 3, 2, 7][:number])
    is_real = torch.arange(WORDS) < lengths[:, None]
    tokens = torch.randint(1, VOCABULARY, (number, WORDS), generator=generator) * is_real
    edges = (torch.rand(number, WORDS, WORDS, generator=generator) < 0.3).triu(diagonal=1)
    edges = (edges | edges.transpose(1, 2)) & is_real[:, None] & is_real[..., None]
    return CaptionInputs(tokens, lengths, edges)


def scores_of(built, images, captions):
    return built.similarity(built.encode_images(images), built.encode_captions(captions))


def loop_attended(queries, contexts, scale):
    """Section 1.5, item by item: the attended vector of each query."""
    leaky = [[max(dot, 0.1 * dot) for dot in (context @ query for query in queries)] for context in contexts]
    normal = [[value / (torch.stack(row).norm() + 1e-8) for value in row] for row in leaky]
    attended = []
    for position in range(len(queries)):
        weights = torch.stack([scale * row[position] for row in normal]).softmax(dim=0)
        attended.append(sum(weight * context for weight, context in zip(weights, contexts, strict=True)))
    return attended


def loop_matches(queries, contexts, spec):
    """One vector of block cosines per query."""
    found = []
    for query, attended in zip(queries, loop_attended(queries, contexts, spec.attention_scale), strict=True):
        parts = zip(query.chunk(spec.blocks), attended.chunk(spec.blocks), strict=True)
        found.append(torch.stack([one @ two / (one.norm() * two.norm()).clamp_min(1e-8) for one, two in parts]))
    return found


def loop_head(head, nodes):
    inner, outer = head.inner, head.outer
    scores = [(outer.weight @ (inner.weight @ node + inner.bias).tanh() + outer.bias).squeeze() for node in nodes]
    return sum(scores) / len(scores)


def loop_text(built, found, words, edges, spec):
    """Equations of section 6.3 with the kernel numbers p_k, the row norm of the sparse graph, and m_i or m_j."""
    generator = torch.Generator().manual_seed(3)
    numbers = torch.rand(spec.kernels, generator=generator, dtype=words[0].dtype) + 0.5  # p_k, which must cancel
    maps = built.word_graph.map.weight.chunk(spec.kernels)
    biases = built.word_graph.map.bias.chunk(spec.kernels)
    nodes = []
    for i in range(len(words)):
        weights = torch.stack([spec.attention_scale * words[i] @ word for word in words]).softmax(dim=0)
        if spec.text_graph == "sparse":
            joined_to = torch.tensor([1.0 if i == j or edges[i, j] else 0.0 for j in range(len(words))]).to(weights)
            weights = weights * joined_to
            weights = weights / (weights.norm() + 1e-8)
        parts = []
        for k in range(spec.kernels):
            edge = weights * numbers[k] / (weights * numbers[k]).sum()
            sources = found if spec.propagation == "paper" else [found[i]] * len(words)
            gathered = sum(weight * source for weight, source in zip(edge, sources, strict=True))
            parts.append(maps[k] @ gathered + biases[k])
        nodes.append(torch.cat(parts))
    return loop_head(built.word_scores, nodes)


def loop_kernels(built, centres, spec):
    """omega[i][j], a vector over kernels."""
    kernels, count = built.kernels, len(centres)
    raw = [[None] * count for _ in range(count)]
    for i in range(count):
        for j in range(count):
            dx, dy = (centres[i] - centres[j]).tolist()
            distance, angle = math.hypot(dx, dy), math.atan2(dx, dy)
            turn = (angle - kernels.mean_angle).abs()
            turn = torch.minimum(turn, (2 * math.pi - turn).abs())
            near = (-0.5 * (distance - kernels.mean_distance) ** 2 / (1e-14 + kernels.width_distance**2)).exp()
            raw[i][j] = near * (-0.5 * turn**2 / (1e-14 + kernels.width_angle**2)).exp()
    if spec.kernel_normalization == "kernels":
        return [[value / value.sum() for value in row] for row in raw]
    return [[value / sum(row) for value in row] for row in raw]


def loop_visual(built, found, centres, spec):
    edges = loop_kernels(built, centres, spec)
    maps, nodes = built.region_graph.map.weight.chunk(spec.kernels), []
    for i in range(len(found)):
        sources = found if spec.propagation == "paper" else [found[i]] * len(found)
        nodes.append(torch.cat([
            maps[k] @ sum(edges[i][j][k] * sources[j] for j in range(len(found))) for k in range(spec.kernels)
        ]))
    return loop_head(built.region_scores, nodes)


def loop_scores(built, images, captions):
    spec, rows = built._spec, []
    texts = []
    for ids, length in zip(captions.tokens, captions.lengths.tolist(), strict=True):
        states, _ = built.gru(built.words(ids[None, :length]))
        halves = states[0].chunk(2, dim=-1)
        texts.append([state / state.norm() for state in (halves[0] + halves[1]) / 2])
    for features, boxes, count in zip(images.features, images.boxes, images.counts.tolist(), strict=True):
        mapped = [built.region_map.weight @ region + built.region_map.bias for region in features[:count]]
        regions = [region / region.norm() for region in mapped]
        centres = (boxes[:count, :2] + boxes[:count, 2:]) / 2
        row = []
        for caption, words in enumerate(texts):
            visual = loop_visual(built, loop_matches(regions, words, spec), centres, spec)
            textual = loop_text(built, loop_matches(words, regions, spec), words, captions.dependencies[caption], spec)
            row.append(visual + textual)
        rows.append(torch.stack(row))
    return torch.stack(rows)


@pytest.mark.parametrize("options", VARIANTS)
def test_scores_and_gradients_equal_plain_loops(options):
    built, images, captions = make(**options), draw_images(3), draw_captions(4)
    fast, slow = scores_of(built, images, captions), loop_scores(built, images, captions)
    assert_same_with_gradients(built, [fast], [slow])


def test_steps_keep_their_size_and_are_cut_to_their_longest_caption(monkeypatch):
    assert module._step_sizes([9, 7, 2, 2, 1], module._NUMBERS_PER_STEP // 14) == [1, 2, 2]
    seen, built = [], make()

    def watched(images, captions, *settings, **kept):
        seen.extend(side.mask.shape for side in captions)
        return matches(images, captions, *settings, **kept)

    monkeypatch.setattr(module, "matches", watched)
    monkeypatch.setattr(module, "_NUMBERS_PER_STEP", 4 * REGIONS * 3 * 9)
    scores_of(built, draw_images(), draw_captions(6))
    assert seen == [(9, 1), (7, 1), (5, 1), (3, 3)]


def test_cells_of_a_grid_stand_for_boxes():
    # 2 x 2 cells, row by row: centres at 1/4 and 3/4
    expected = torch.tensor([[0.25, 0.25], [0.75, 0.25], [0.25, 0.75], [0.75, 0.75]], dtype=torch.float64)
    torch.testing.assert_close(grid_centres(4), expected)
    built, captions = make(), draw_captions()
    images = draw_images(counts=[4, 4, 4, 4])
    boxes = torch.tensor([[0, 0, 0.5, 0.5], [0.5, 0, 1, 0.5], [0, 0.5, 0.5, 1], [0.5, 0.5, 1, 1]]).double()
    grid = ImageInputs(images.features, images.counts)
    same = ImageInputs(images.features, images.counts, boxes.expand(4, -1, -1))
    torch.testing.assert_close(scores_of(built, grid, captions), scores_of(built, same, captions), rtol=0, atol=1e-12)


def test_edges_stay_finite_where_every_kernel_underflows():
    kernels = BoxKernels(2, normalized_over="kernels")
    with torch.no_grad():
        kernels.width_distance.fill_(0.0)
        kernels.mean_distance.copy_(torch.tensor([0.4, 0.9]))
    edges = kernels(torch.rand(1, 4, 2), torch.ones(1, 4, dtype=torch.bool))
    edges[:, 0].sum().backward()
    torch.testing.assert_close(edges.sum(dim=1), torch.ones(1, 4, 4))
    assert all(torch.isfinite(value.grad).all() for value in kernels.parameters())
