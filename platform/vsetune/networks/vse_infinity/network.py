"""VSE-infinity (Chen et al. 2021): generalised pooling over regions or grid cells, and over words."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import Network, NetworkGroup, region_mask, unit_length, word_mask
from vsetune.networks.network_building import register
from vsetune.networks.parts.backbone import Backbone
from vsetune.networks.parts.batch_normalization import normalize_rows
from vsetune.networks.parts.image_vectors import mean_of_crops, pixels_of
from vsetune.networks.parts.linear import xavier_linear
from vsetune.networks.parts.network_devices import beside
from vsetune.networks.parts.parameter_groups import backbone_groups, groups_beside
from vsetune.networks.parts.real_parts import RealParts
from vsetune.networks.parts.text_transformer import TextTransformer
from vsetune.networks.parts.words import embed_words, word_embedding, word_states
from vsetune.networks.vse_infinity.augmentation import drop_cells, drop_regions, drop_word_pieces, drop_words
from vsetune.networks.vse_infinity.pooling import GeneralisedPooling
from vsetune.networks.vse_infinity.spec import VseInfinitySpec


@register(VseInfinitySpec)
class VseInfinity(Network):
    """v = n(GPO of mapped regions), t = n(GPO of mapped words); each tower has its own GPO.

    Region mode (`image_mlp`) adds a residual MLP to the linear map of a region. Grid mode has the linear map alone,
    over stored cells or those of a CNN that reads the photograph. Words are states of a Bi-GRU, or mapped states of
    BERT.
    """

    def __init__(self, spec: VseInfinitySpec, *, width: int, vocabulary_size: int) -> None:
        super().__init__(spec)
        self._spec = spec
        self._vocabulary_size = vocabulary_size
        self.backbone = Backbone(spec.backbone, gives="cells") if spec.image_input == "pixels" else None
        width = self.backbone.width if self.backbone is not None else width
        self.region_map = xavier_linear(width, spec.embedding_size)
        self.region_mlp = RegionMlp(width, spec.embedding_size) if spec.image_mlp else None
        self.image_pooling = GeneralisedPooling(spec.pooling_size)
        pieces = spec.reads.word_pieces
        self.transformer = TextTransformer(pieces) if pieces is not None else None
        if self.transformer is not None:
            self.word_map = nn.Linear(self.transformer.width, spec.embedding_size)
        else:
            self.words = word_embedding(vocabulary_size, spec.word_size)
            self.gru = nn.GRU(spec.word_size, spec.embedding_size, batch_first=True, bidirectional=True)
        self.caption_pooling = GeneralisedPooling(spec.pooling_size)

    def encode_images(self, images: ImageInputs) -> Encoded:
        """(n, D). In training regions are dropped, then only the real ones are mapped and counted by BatchNorm."""
        if self.backbone is not None:
            return Encoded(mean_of_crops(self._embed_photographs, pixels_of(images)))
        return Encoded(self._embed(images.features, region_mask(images.counts_on_host, images.features.shape[1])))

    def encode_captions(self, captions: CaptionInputs) -> Encoded:
        """(m, D). In training words are masked, replaced or dropped first."""
        tokens, lengths = captions.tokens, captions.lengths_on_host
        if self.training and self._spec.augment:
            tokens, lengths = self._augmented(tokens, lengths)
        if self.transformer is not None:
            states = self.word_map(self.transformer(tokens, beside(lengths, tokens)))
        else:
            states = word_states(self.gru, embed_words(self.words, tokens, lengths))
        return Encoded(unit_length(self.caption_pooling(states, word_mask(lengths, states.shape[1]))))

    def parameter_groups(self) -> list[NetworkGroup]:
        """The CNN and BERT with their own rates, the CNN frozen at first."""
        groups = backbone_groups(self.backbone, self._spec.backbone)
        if self.transformer is not None:
            groups.append(NetworkGroup(list(self.transformer.parameters()), self._spec.text_rate_factor))
        return groups_beside(self, groups)

    def _embed_photographs(self, pixels: Tensor) -> Tensor:
        """(n, D). pixels: (n, 3, S, S)."""
        assert self.backbone is not None
        cells = self.backbone.cells(pixels)
        return self._embed(cells, torch.ones(cells.shape[:2], dtype=torch.bool))

    def _embed(self, regions: Tensor, mask: Tensor) -> Tensor:
        """(n, D) of unit length. regions: (n, R, width); mask: (n, R) bool, True for real ones, on the host."""
        if self.training and self._spec.augment:
            drop = drop_regions if self.region_mlp is not None else drop_cells
            mask = drop(mask, self._spec.region_dropout)
        real = RealParts.of_mask(mask, regions)
        rows = real.rows(regions)
        mapped = self.region_map(rows)
        if self.region_mlp is not None:
            mapped = mapped + self.region_mlp(rows, zeros=self._zero_rows(mask))
        return unit_length(self.image_pooling(real.placed(mapped), mask))

    def _zero_rows(self, mask: Tensor) -> int:
        """Zero rows that the released code adds to the regions of a training batch, as all images are padded to the
        longest."""
        if self._spec.mlp_statistics == "regions" or not self.training:
            return 0
        counts = mask.sum(dim=1)
        return int((counts.max() - counts).sum())

    def _augmented(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """lengths: on the host, and so are the new ones."""
        probability = self._spec.word_dropout
        if self.transformer is None:
            return drop_words(tokens, lengths, probability=probability, vocabulary_size=self._vocabulary_size)
        pieces = self.transformer.pieces(torch.device("cpu"))
        return drop_word_pieces(
            tokens, lengths, probability=probability, mask=pieces.mask, fixed=pieces.fixed, continues=pieces.continues
        )


class RegionMlp(nn.Module):
    """nn.Linear to half the joint size, BatchNorm, ReLU, linear to the joint size."""

    def __init__(self, width: int, embedding_size: int) -> None:
        super().__init__()
        hidden = max(1, embedding_size // 2)
        self.inner = nn.Linear(width, hidden)
        self.norm = nn.BatchNorm1d(hidden)
        self.outer = nn.Linear(hidden, embedding_size)

    def forward(self, rows: Tensor, *, zeros: int = 0) -> Tensor:
        """(rows, D). rows: (rows, width), the real regions only. zeros: rows of zeros that the statistics count too."""
        read = rows if zeros == 0 else torch.cat((rows, rows.new_zeros(zeros, rows.shape[1])))
        hidden = normalize_rows(self.norm, self.inner(read))[: len(rows)]
        out: Tensor = self.outer(hidden.relu())
        return out
