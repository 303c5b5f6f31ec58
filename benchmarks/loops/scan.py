"""SCAN one caption at a time, as its released code computes scores: the caption is repeated for every image.

Letters of shapes: N images, R regions, M captions, L words of a caption, D dimensions, Q of what attends, K of what is
attended to.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, leaky_relu

from vsetune.networks.encoded import Encoded
from vsetune.networks.network_base import unit_length
from vsetune.networks.scan.spec import ScanSpec


def looped_similarity(network: torch.nn.Module, images: Encoded, captions: Encoded) -> Tensor:
    """(N, M) scores of a Scan with `clipped_l2` attention. All regions are real."""
    spec: ScanSpec = network._spec
    columns = []
    for words, length in zip(captions.vectors, captions.lengths.tolist(), strict=True):
        repeated = words[:length].repeat(len(images), 1, 1)
        queries, contexts = repeated, images.vectors
        if spec.direction == "image_to_text":
            queries, contexts = contexts, queries
        attended = attended_contexts(queries, contexts, scale=spec.attention_scale, leak=spec.leak)
        cosines = cosine_similarity(queries, attended, dim=2)
        if spec.pooling == "lse":
            columns.append((spec.pooling_scale * cosines).exp().sum(dim=1).log() / spec.pooling_scale)
        else:
            columns.append(cosines.mean(dim=1))
    return torch.stack(columns, dim=1)


def attended_contexts(queries: Tensor, contexts: Tensor, *, scale: float, leak: float) -> Tensor:
    """(N, Q, D) sums of contexts (N, K, D), weighted by what each of the queries (N, Q, D) attends to."""
    products = leaky_relu(contexts @ queries.mT, leak)
    weights = (scale * unit_length(products).mT).softmax(dim=2)
    return weights @ contexts
