"""VSE-infinity (Chen et al. 2021) with the Bi-GRU text tower: generalised pooling over regions and over words."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from vsetune.config.networks import VseInfinitySpec
from vsetune.networks.augmentation import drop_cells, drop_regions, drop_words
from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network import Network, at_least_float32, region_mask, unit_length
from vsetune.networks.pooling import GeneralisedPooling
from vsetune.networks.registry import register
from vsetune.networks.words import embed_words, word_embedding, word_states


@register(VseInfinitySpec)
class VseInfinity(Network):
    """v = n(GPO of mapped regions), t = n(GPO of Bi-GRU word states); each tower has its own GPO.

    Region mode (`image_mlp`) adds a residual MLP to the linear map of a region; grid mode has the linear map alone.
    """

    def __init__(self, spec: VseInfinitySpec, *, width: int, vocabulary_size: int) -> None:
        super().__init__(spec)
        self._spec = spec
        self._vocabulary_size = vocabulary_size
        self.region_map = nn.Linear(width, spec.embedding_size)
        nn.init.xavier_uniform_(self.region_map.weight)
        nn.init.zeros_(self.region_map.bias)
        self.region_mlp = RegionMlp(width, spec.embedding_size) if spec.image_mlp else None
        self.image_pooling = GeneralisedPooling(spec.pooling_size)
        self.words = word_embedding(vocabulary_size, spec.word_size)
        self.gru = nn.GRU(spec.word_size, spec.embedding_size, batch_first=True, bidirectional=True)
        self.caption_pooling = GeneralisedPooling(spec.pooling_size)

    def encode_images(self, images: ImageInputs) -> Encoded:
        """(n, D). In training regions are dropped, then only the real ones are mapped and counted by BatchNorm."""
        mask = region_mask(images.counts, images.features.shape[1])
        if self.training and self._spec.augment:
            drop = drop_regions if self.region_mlp is not None else drop_cells
            mask = drop(mask, self._spec.region_dropout)
        rows = images.features[mask]
        mapped = self.region_map(rows)
        if self.region_mlp is not None:
            mapped = mapped + self.region_mlp(rows)
        placed = mapped.new_zeros(*mask.shape, self.embedding_size)
        placed[mask] = mapped
        return Encoded(unit_length(self.image_pooling(placed, mask)))

    def encode_captions(self, captions: CaptionInputs) -> Encoded:
        """(m, D). In training words are masked, replaced or dropped first."""
        tokens, lengths = captions.tokens, captions.lengths
        if self.training and self._spec.augment:
            tokens, lengths = drop_words(
                tokens, lengths, probability=self._spec.word_dropout, vocabulary_size=self._vocabulary_size
            )
        states = word_states(self.gru, embed_words(self.words, tokens, lengths))
        mask = torch.arange(states.shape[1], device=lengths.device) < lengths[:, None]
        return Encoded(unit_length(self.caption_pooling(states, mask)))


class RegionMlp(nn.Module):
    """Linear to half the joint size, BatchNorm, ReLU, linear to the joint size."""

    def __init__(self, width: int, embedding_size: int) -> None:
        super().__init__()
        hidden = max(1, embedding_size // 2)
        self.inner = nn.Linear(width, hidden)
        self.norm = nn.BatchNorm1d(hidden)
        self.outer = nn.Linear(hidden, embedding_size)

    def forward(self, rows: Tensor) -> Tensor:
        """(rows, D). rows: (rows, width), the real regions only: padding must not enter the statistics."""
        hidden = at_least_float32(self.inner(rows))
        norm = self.norm
        # one row has no variance: it is normalised by the running statistics, as in evaluation
        uses_batch = self.training and len(rows) > 1
        hidden = functional.batch_norm(
            hidden, norm.running_mean, norm.running_var, norm.weight, norm.bias,
            training=uses_batch, momentum=norm.momentum or 0.0, eps=norm.eps,
        )
        out: Tensor = self.outer(hidden.relu())
        return out
