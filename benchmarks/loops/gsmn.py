"""GSMN one caption at a time, as its released code computes scores: the caption is repeated for every image, each node
gets its own copy of its neighbours' matches.

Letters of shapes: N images, R regions, M captions, L words of a caption, D dimensions, B blocks, K kernels, H = K x F
hidden units; Q of what attends, P nodes, J neighbours.
"""

from __future__ import annotations

import torch
from loops.scan import attended_contexts
from torch import Tensor
from torch.nn.functional import cosine_similarity

from vsetune.networks.encoded import Encoded
from vsetune.networks.gsmn.spec import GsmnSpec


def looped_similarity(network: torch.nn.Module, images: Encoded, captions: Encoded) -> Tensor:
    """(N, M) scores of a Gsmn, dense or sparse, of either propagation. All regions are real."""
    spec: GsmnSpec = network._spec
    regions = images.vectors
    edges = network.kernels(images.centres, torch.ones_like(images.centres[..., 0], dtype=torch.bool))
    edges = edges.permute(0, 2, 1, 3)  # (N, R, K, R)
    columns = []
    for caption, length in enumerate(captions.lengths.tolist()):
        words = captions.vectors[caption, :length].repeat(len(images), 1, 1)
        of_regions = block_cosines(regions, attended(regions, words, spec), spec.blocks)
        nodes = propagated(of_regions, edges, network.region_graph.map, spec)
        scores = head(network.region_scores, nodes)
        of_words = block_cosines(words, attended(words, regions, spec), spec.blocks)
        if captions.links is None:
            nodes = network.word_graph.map(of_words)
        else:
            links = captions.links[caption, :length, :length]
            weights = links[:, None].expand(length, spec.kernels, length).repeat(len(images), 1, 1, 1)
            nodes = propagated(of_words, weights, network.word_graph.map, spec)
        columns.append(scores + head(network.word_scores, nodes))
    return torch.stack(columns, dim=1)


def attended(queries: Tensor, contexts: Tensor, spec: GsmnSpec) -> Tensor:
    """(N, Q, D)."""
    return attended_contexts(queries, contexts, scale=spec.attention_scale, leak=0.1)


def block_cosines(queries: Tensor, found: Tensor, blocks: int) -> Tensor:
    """(N, Q, B) cosines of the blocks of queries and of what they attend to, both (N, Q, D)."""
    shape = (*queries.shape[:2], blocks, -1)
    return cosine_similarity(queries.reshape(shape), found.reshape(shape), dim=3)


def propagated(matches: Tensor, weights: Tensor, maps: torch.nn.Linear, spec: GsmnSpec) -> Tensor:
    """(N, P, H). matches: (N, P, B); weights: (N, P, K, J) of the neighbours. maps: all W_k, one below the other."""
    number, nodes, _ = matches.shape
    if spec.propagation == "paper":
        neighbours = matches[:, None].repeat(1, nodes, 1, 1)
    else:  # the released code repeats the node itself in the place of its neighbours
        neighbours = matches[:, :, None].repeat(1, 1, nodes, 1)
    gathered = weights.flatten(0, 1) @ neighbours.flatten(0, 1)  # (N P, K, B)
    biases = [None] * spec.kernels if maps.bias is None else maps.bias.chunk(spec.kernels)
    mapped = [
        torch.nn.functional.linear(gathered[:, kernel], weight, biases[kernel])
        for kernel, weight in enumerate(maps.weight.chunk(spec.kernels))
    ]
    return torch.cat(mapped, dim=1).reshape(number, nodes, -1)


def head(scores: torch.nn.Module, nodes: Tensor) -> Tensor:
    """(N,) mean over the nodes (N, P, H)."""
    return scores.outer(scores.inner(nodes).tanh()).squeeze(2).mean(dim=1)
