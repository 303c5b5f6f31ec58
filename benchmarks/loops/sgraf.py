"""SGRAF one caption at a time, as its released code computes scores: the caption is repeated for every image.

As in the released code t*, the vector of a whole caption, is part of a turn; v* comes with the images.

Letters of shapes: N images, R regions, M captions, L words of a caption, D dimensions, P = L + 1 nodes, S similarity
dimensions.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from loops.scan import attended_contexts
from torch import Tensor

from vsetune.networks.encoded import Encoded
from vsetune.networks.network_base import unit_length
from vsetune.networks.parts.cross_attention import word_mask_of
from vsetune.networks.sgraf.similarity_reasoning import AttentionFiltration, GraphReasoning


def looped_similarity(network: torch.nn.Module, images: Encoded, captions: Encoded) -> Tensor:
    """(N, M) scores of an Sgraf; in training SAF's batch normalisation is called once per caption. All regions real."""
    columns = []
    for padded, length in zip(captions.vectors, captions.lengths.tolist(), strict=True):
        words = padded[:length]
        whole = network.caption_attention(words[None], torch.ones(1, length, dtype=torch.bool, device=words.device))
        repeated = words.repeat(len(images), 1, 1)
        attended = unit_length(
            attended_contexts(repeated, images.vectors, scale=network._spec.attention_scale, leak=0.1)
        )
        local = unit_length(network.local_map((attended - repeated).square()))
        one = unit_length(network.global_map((images.whole - whole).square()))
        nodes = torch.cat((one[:, None], local), dim=1)
        reasoning = network.reasoning
        columns.append(graph_scores(reasoning, nodes) if isinstance(reasoning, GraphReasoning)
                       else filtered_scores(reasoning, nodes))
    return torch.stack(columns, dim=1)


def batched_similarity(network: torch.nn.Module, images: Encoded, captions: Encoded) -> Tensor:
    """Ours, t* included, which `encode_captions` computes elsewhere."""
    is_word = word_mask_of(captions)
    # the mean of words sums padding too, which is 0; here it is a leaf and would get a gradient
    whole = network.caption_attention(captions.vectors * is_word[..., None], is_word)
    return network.similarity(images, replace(captions, whole=whole))


def graph_scores(reasoning: GraphReasoning, nodes: Tensor) -> Tensor:
    """(N,). nodes: (N, P, S)."""
    for step in reasoning.steps:
        edges = (step.query(nodes) @ step.key(nodes).mT).softmax(dim=2)
        nodes = step.out(edges @ nodes).relu()
    return reasoning.score(nodes[:, 0]).squeeze(1).sigmoid()


def filtered_scores(reasoning: AttentionFiltration, nodes: Tensor) -> Tensor:
    """(N,). nodes: (N, P, S)."""
    gates = reasoning.gate_norm(reasoning.gate(nodes).mT).sigmoid()
    gates = gates / (gates.sum(dim=2, keepdim=True) + 1e-8)
    filtered = unit_length((gates @ nodes).squeeze(1))
    return reasoning.score(filtered).squeeze(1).sigmoid()
