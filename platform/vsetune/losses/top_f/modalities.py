"""Top-f triplets of tuples with any number of modalities (Huteau et al. 2023, MSE**, Eq. 2-4).

A tuple holds elements of K modalities. An anchor is any element, its positives are the elements of its tuple in other
modalities, its negatives those of other tuples in other modalities. Two modalities give `top_f_loss`. With more:

    pairwise   one mean over anchors per ordered pair of modalities, then the mean over the K (K - 1) pairs
    union      one mean over anchors per modality, whose anchors see all other modalities as one pool (the definition)

`pairwise` is the default, as modalities have similarities of different scale: in a pool the hardest would come from one
of them.
Train data here have two modalities, so no loss of a study file reads this; it is for code that brings its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Literal

import torch
from torch import Tensor

from vsetune.errors import ConfigError
from vsetune.losses.top_f.active_triplets import active_triplets
from vsetune.losses.top_f.loss import anchor_means


def top_f_of_modalities(
    similarities: Mapping[tuple[str, str], Tensor], tuple_ids: Mapping[str, Tensor], *,
    pooling: Literal["pairwise", "union"] = "pairwise", margin: float, fraction: float,
) -> Tensor:
    """Top-f loss over all modalities, divided by the margin. Scalar, 1 at exact collapse.

    tuple_ids: (N_a,) per modality a, the tuple of each of its elements. similarities: (N_a, N_b) per pair (a, b) of
    modalities, float32 or wider, each pair once, in either order. margin: m > 0. fraction: f in [0, 1], share of the
    hardest positives and negatives. Anchors without positives or without negatives are skipped; a pair (`union`: a
    modality) without any anchor counts as 0. A NaN in any similarity reaches the value.
    Raises ConfigError for fewer than two modalities, a pair that is missing, given twice or unknown, or a wrong shape.
    """
    _check(similarities, tuple_ids)
    means = []
    for anchor, ids in tuple_ids.items():
        others = [other for other in tuple_ids if other != anchor]
        scores = [_oriented(similarities, anchor, other) for other in others]
        pools = [tuple_ids[other] for other in others]
        if pooling == "union":
            scores, pools = [torch.cat(scores, dim=1)], [torch.cat(pools)]
        means += [
            _mean_of_anchors(similarity, ids[:, None] == pool[None, :], margin=margin, fraction=fraction)
            for similarity, pool in zip(scores, pools, strict=True)
        ]
    return torch.stack(means).mean() / margin


def _mean_of_anchors(similarity: Tensor, positives: Tensor, *, margin: float, fraction: float) -> Tensor:
    triplets = active_triplets(similarity, positives, ~positives, margin=margin, fraction=fraction)
    return anchor_means(similarity, triplets, margin=margin).sum() / (triplets.used > 0).sum().clamp(min=1)


def _oriented(similarities: Mapping[tuple[str, str], Tensor], rows: str, columns: str) -> Tensor:
    straight = similarities.get((rows, columns))
    return similarities[columns, rows].T if straight is None else straight


def _check(similarities: Mapping[tuple[str, str], Tensor], tuple_ids: Mapping[str, Tensor]) -> None:
    if len(tuple_ids) < 2:
        raise ConfigError(f"modalities: got {len(tuple_ids)}, need at least 2; give the tuple ids of each modality")
    expected = {frozenset(pair) for pair in combinations(tuple_ids, 2)}
    if len(similarities) != len(expected) or {frozenset(pair) for pair in similarities} != expected:
        got = ", ".join(f"{a}-{b}" for a, b in similarities) or "none"
        need = ", ".join(f"{a}-{b}" for a, b in combinations(tuple_ids, 2))
        raise ConfigError(f"modalities: got the similarities {got}; need each of these once, in either order: {need}")
    for (a, b), similarity in similarities.items():
        shape, size = tuple(similarity.shape), (len(tuple_ids[a]), len(tuple_ids[b]))
        if shape != size:
            raise ConfigError(f"modalities: got {a}-{b} of shape {shape}, need {size} as the tuple ids say")
