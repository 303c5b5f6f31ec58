"""SCAN, SGRAF and GSMN: the imported network scores pairs as the released modules do, pair by pair."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from refusals import refused
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, leaky_relu, normalize
from torch.nn.utils import weight_norm
from torch.testing import assert_close

WIDTH, WORDS, WORD_SIZE, SIZE, REGIONS = 6, 12, 5, 8, 4

pytestmark = pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")


def towers(released: Callable[..., nn.Module], rnn: str = "rnn", fc: nn.Module | None = None) -> tuple[Any, Any]:
    gru = nn.GRU(WORD_SIZE, SIZE, batch_first=True, bidirectional=True)
    text = released(embed=nn.Embedding(WORDS, WORD_SIZE), **{rnn: gru})
    return released(fc=fc or nn.Linear(WIDTH, SIZE)), text


def pairs(image: Any, text: Any, features: Tensor, captions: list[Tensor], rnn: str = "rnn") -> Iterator[Any]:
    """(image, caption, regions of unit length, words of unit length) of every pair."""
    for row, regions in enumerate(features):
        for column, ids in enumerate(captions):
            states = getattr(text, rnn)(text.embed(ids)[None])[0][0]
            words = normalize((states[:, :SIZE] + states[:, SIZE:]) / 2, dim=-1)
            yield row, column, normalize(image.fc(regions), dim=-1), words


def attended(queries: Tensor, contexts: Tensor, scale: float) -> Tensor:
    """What each query attends to: products clipped, each context of unit length over the queries, softmax."""
    strengths = normalize(leaky_relu(queries @ contexts.T, 0.1), dim=0)
    return (scale * strengths).softmax(dim=1) @ contexts


@torch.no_grad()
@pytest.mark.parametrize("direction", ["t2i", "i2t"])
@pytest.mark.parametrize("is_normed", [False, True])
def test_scan_gives_the_scores_of_the_released_modules(
    direction: str, is_normed: bool, released: Any, checkpoint: Any, bring: Any, scores: Any, features: Tensor,
    captions: list[Tensor],
) -> None:
    fc = weight_norm(nn.Linear(WIDTH, SIZE), dim=None) if is_normed else None
    image, text = towers(released, fc=fc)
    path = checkpoint(
        image, text, cross_attn=direction, agg_func="LogSumExp", lambda_softmax=7.0, lambda_lse=3.0,
        raw_feature_norm="clipped_l2norm", no_imgnorm=False, no_txtnorm=False,
    )
    imported, network = bring(path, "scan")
    expected = torch.zeros(len(features), len(captions))
    for row, column, regions, words in pairs(image, text, features, captions):
        queries, contexts = (words, regions) if direction == "t2i" else (regions, words)
        cosines = cosine_similarity(queries, attended(queries, contexts, 7.0), dim=-1)
        expected[row, column] = (3.0 * cosines).exp().sum().log() / 3.0
    assert not imported.assumed
    assert_close(scores(network), expected)


def test_scan_without_settings_says_what_it_assumed(
    released: Any, checkpoint: Any, bring: Any
) -> None:
    imported, _ = bring(checkpoint(*towers(released)), "scan")
    assert {"direction", "pooling", "attention_scale", "pooling_scale"} < set(imported.assumed)


def test_a_variant_that_is_not_built_here_is_refused(released: Any, checkpoint: Any, bring: Any) -> None:
    path = checkpoint(*towers(released), raw_feature_norm="l1norm")
    with refused("VSE-N044", setting="raw_feature_norm", got="l1norm"):
        bring(path, "scan")


def self_attention(released: Callable[..., nn.Module], *, of_image: bool) -> Any:
    local, whole = [nn.Linear(SIZE, SIZE)], [nn.Linear(SIZE, SIZE)]
    if of_image:
        local, whole = [*local, nn.BatchNorm1d(REGIONS)], [*whole, nn.BatchNorm1d(SIZE)]
    return released(
        embedding_local=nn.Sequential(*local, nn.Tanh(), nn.Dropout(0.4)),
        embedding_global=nn.Sequential(*whole, nn.Tanh(), nn.Dropout(0.4)),
        embedding_common=nn.Sequential(nn.Linear(SIZE, 1)),
    )


def summary(attention: Any, parts: Tensor) -> Tensor:
    common = attention.embedding_local(parts[None])[0] * attention.embedding_global(parts.mean(dim=0)[None])
    return normalize((attention.embedding_common(common).softmax(dim=0) * parts).sum(dim=0), dim=0)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["SAF", "SGR"])
def test_sgraf_gives_the_scores_of_the_released_modules(
    kind: str, released: Any, checkpoint: Any, bring: Any, scores: Any, features: Tensor, captions: list[Tensor]
) -> None:
    similarity_size = 5
    image, text = towers(released, rnn="cap_rnn")
    if kind == "SAF":
        reasoning = {"SAF_module": released(attn_sim_w=nn.Linear(similarity_size, 1), bn=nn.BatchNorm1d(1))}
    else:
        names = ("graph_query_w", "graph_key_w", "sim_graph_w")
        step = lambda: released(**{name: nn.Linear(similarity_size, similarity_size) for name in names})  # noqa: E731
        reasoning = {"SGR_module": nn.ModuleList([step(), step(), step()])}
    similarity: Any = released(
        v_global_w=self_attention(released, of_image=True), t_global_w=self_attention(released, of_image=False),
        sim_tranloc_w=nn.Linear(SIZE, similarity_size), sim_tranglo_w=nn.Linear(SIZE, similarity_size),
        sim_eval_w=nn.Linear(similarity_size, 1), **reasoning,
    )
    imported, network = bring(checkpoint(image, text, similarity, module_name=kind, sgr_step=3), "sgraf")
    expected = torch.zeros(len(features), len(captions))
    for row, column, regions, words in pairs(image, text, features, captions, "cap_rnn"):
        local = (normalize(attended(words, regions, 9.0), dim=-1) - words) ** 2
        whole = (summary(similarity.v_global_w, regions) - summary(similarity.t_global_w, words)) ** 2
        nodes = torch.cat((similarity.sim_tranglo_w(whole)[None], similarity.sim_tranloc_w(local)))
        vector = reasoned(similarity, normalize(nodes, dim=-1), kind)
        expected[row, column] = similarity.sim_eval_w(vector).sigmoid()
    assert imported.spec.to_plain()["name"] == f"sgraf_{kind.lower()}"
    assert imported.regions == REGIONS
    assert_close(scores(network), expected)


def reasoned(similarity: Any, nodes: Tensor, kind: str) -> Tensor:
    if kind == "SAF":
        saf = similarity.SAF_module
        gates = saf.bn(saf.attn_sim_w(nodes).T[None])[0, 0].sigmoid()
        return normalize(gates / gates.sum() @ nodes, dim=0)
    for step in similarity.SGR_module:
        edges = (step.graph_query_w(nodes) @ step.graph_key_w(nodes).T).softmax(dim=-1)
        nodes = step.sim_graph_w(edges @ nodes).relu()
    return nodes[0]


KERNELS, BLOCKS, HIDDEN = 2, 4, 6


def match_graph(released: Callable[..., nn.Module], convolution: str, *, of_regions: bool) -> Any:
    bias = not of_regions
    maps = nn.ModuleList([nn.Linear(BLOCKS, HIDDEN // KERNELS, bias=bias) for _ in range(KERNELS)])
    names = ("mean_rho", "mean_theta", "precision_rho", "precision_theta") if of_regions else ("params",)
    numbers = {name: nn.Parameter(torch.zeros(KERNELS, 1)) for name in names}
    return released(
        **{convolution: released(conv_weights=maps, **numbers)},
        out_1=weight_norm(nn.Linear(HIDDEN, HIDDEN)), out_2=weight_norm(nn.Linear(HIDDEN, 1)),
    )


def kernel_weights(graph: Any, centre: Tensor, other: Tensor) -> Tensor:
    """(kernels,) of one edge, sum 1."""
    dx, dy = (centre - other).tolist()
    distance, angle = math.hypot(dx, dy), math.atan2(dx, dy)
    turn = (angle - graph.mean_theta[:, 0]).abs()
    turn = torch.minimum(turn, (2 * math.pi - turn).abs())
    logs = -0.5 * (distance - graph.mean_rho[:, 0]) ** 2 / (1e-14 + graph.precision_rho[:, 0] ** 2)
    return (logs - 0.5 * turn**2 / (1e-14 + graph.precision_theta[:, 0] ** 2)).softmax(dim=0)


@torch.no_grad()
@pytest.mark.parametrize("names", [("vGNN", "tGNN"), ("graph_convolution_1", "graph_convolution_3")])
def test_gsmn_gives_the_scores_of_the_released_modules(
    names: tuple[str, str], released: Any, checkpoint: Any, bring: Any, scores: Any, features: Tensor,
    captions: list[Tensor],
) -> None:
    image, text = towers(released)
    of_regions = match_graph(released, names[0], of_regions=True)
    of_words = match_graph(released, names[1], of_regions=False)
    path = checkpoint(image, text, of_regions, of_words, is_sparse=False, lambda_softmax=10.0)
    imported, network = bring(path, "gsmn")
    corners = torch.rand(len(features), REGIONS, 2) / 2
    boxes = torch.cat((corners, corners + torch.rand_like(corners) / 2), dim=-1)
    centres = (boxes[..., :2] + boxes[..., 2:]) / 2
    visual, textual = getattr(of_regions, names[0]), getattr(of_words, names[1])
    expected = torch.zeros(len(features), len(captions))
    for row, column, regions, words in pairs(image, text, features, captions):
        found = blocks_matched(regions, attended(regions, words, 10.0))
        gates = [sum(kernel_weights(visual, centre, other) for other in centres[row]) for centre in centres[row]]
        nodes = torch.cat([torch.stack(gates)[:, [k]] * visual.conv_weights[k](found) for k in range(KERNELS)], dim=1)
        found = blocks_matched(words, attended(words, regions, 10.0))
        word_nodes = torch.cat([textual.conv_weights[k](found) for k in range(KERNELS)], dim=1)
        expected[row, column] = sum(
            graph.out_2(graph.out_1(each).tanh()).mean()
            for graph, each in ((of_regions, nodes), (of_words, word_nodes))
        )
    assert list(imported.unused) == ["t2i_match_G.tGNN.params"]
    assert imported.settings["propagation"] == "released"
    assert_close(scores(network, boxes=boxes), expected, atol=1e-4, rtol=1e-4)


def blocks_matched(queries: Tensor, contexts: Tensor) -> Tensor:
    """(n, blocks) cosines block by block."""
    parts = [each.view(-1, BLOCKS, SIZE // BLOCKS) for each in (queries, contexts)]
    return cosine_similarity(*parts, dim=-1)
