"""Semantic vectors of captions from a pre-trained encoder (LSEH with BERT; Zhang et al.; SRD@k).

The encoder is frozen and fitted on none of our captions, so every split may be encoded. Its cosines can lie close
together, which makes a semantic margin nearly constant: see `vsetune.data.captions.semantic_sources.cosine_spread`.
"""

from __future__ import annotations

import logging

import numpy as np
import torch

from vsetune.config.sources.pretrained_models import encoder_identity
from vsetune.config.sources.semantic_vectors import EncoderSpec
from vsetune.data.captions.svd_semantics import captions_fingerprint
from vsetune.data.captions.text_encoder import TextEncoder
from vsetune.data.progress import ProgressSink, SilentProgress
from vsetune.data.stored.array_cache import cached_array
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.shards import iter_captions
from vsetune.errors import ConfigError

_log = logging.getLogger(__name__)

_METHOD = "encoder-1"
"""Part of the file name: raise the number when the vectors of an equal recipe change."""


def encoder_vectors(
    dataset: Dataset, spec: EncoderSpec, *, split: str, device: str | torch.device = "cpu",
    progress: ProgressSink | None = None,
) -> np.ndarray:
    """(captions, k) float32, row = caption id; k is the width of the model. Read-only, not normalised.

    Computed once and kept beside the shards, or in vsetune's home when the data are remote or read-only; when it is
    kept, the model is not loaded. ConfigError when there is no such model.
    """
    captions = dataset.split(split).captions
    recipe = f"{_METHOD}-{encoder_identity(spec)}-t{spec.max_tokens}"
    name = f"semantics-{split}-{recipe}-{captions_fingerprint(dataset, split)}.npy"

    def encoded() -> np.ndarray:
        sink = progress or SilentProgress()
        texts = list(iter_captions(dataset, split))
        encoder = TextEncoder(spec, device=device)
        sink.stage(f"encoding captions of {split}", len(texts))
        return encode_all(encoder, texts, batch_size=spec.batch_size, progress=sink)

    return cached_array(dataset.path, name, rows=captions, make=encoded)


def encode_all(encoder: TextEncoder, texts: list[str], *, batch_size: int, progress: ProgressSink) -> np.ndarray:
    """(texts, k) float32. Texts of like length go together, the longest first, so that little is padded."""
    order = sorted(range(len(texts)), key=lambda index: (-len(texts[index]), index))
    vectors = np.empty((len(texts), encoder.width), np.float32)
    for start in range(0, len(order), batch_size):
        chosen = order[start : start + batch_size]
        vectors[chosen] = encoder.encode([texts[index] for index in chosen])
        progress.advance(len(chosen))
    if not np.isfinite(vectors).all():
        broken = int((~np.isfinite(vectors).all(axis=1)).sum())
        raise ConfigError(
            f"data.encoder: {broken} of {len(texts)} captions get vectors that are not finite, so the weights are "
            "damaged; use another model"
        )
    if encoder.cut:
        _log.info("%d of %d captions fill the length limit of the encoder; what is beyond is cut off",
                  encoder.cut, len(texts))
    return vectors
