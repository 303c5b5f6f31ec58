"""VSE-infinity (Chen et al. 2021): generalised pooling over regions or grid cells, and over words."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import (
    Network,
    NetworkGroup,
    at_least_float32,
    backbone_groups,
    groups_beside,
    region_mask,
    unit_length,
    word_mask,
)
from vsetune.networks.network_building import register
from vsetune.networks.parts.backbone import Backbone
from vsetune.networks.parts.batch_normalization import SharedBatchNorm, normalize_rows
from vsetune.networks.parts.image_vectors import mean_of_crops, pixels_of
from vsetune.networks.parts.layers import xavier_linear
from vsetune.networks.parts.network_devices import beside
from vsetune.networks.parts.packing import RealParts, pack, unpack
from vsetune.networks.parts.recurrence import embed_words, run_gru, word_embedding, word_states
from vsetune.networks.parts.text_transformer import TextTransformer
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
        counts_padding = spec.mlp_statistics == "padded"
        has_mlp = spec.image_mlp
        self.region_mlp = RegionMlp(width, spec.embedding_size, counts_padding=counts_padding) if has_mlp else None
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

    def __init__(self, width: int, embedding_size: int, *, counts_padding: bool) -> None:
        super().__init__()
        hidden = max(1, embedding_size // 2)
        self.inner = nn.Linear(width, hidden)
        self.norm = nn.BatchNorm1d(hidden) if counts_padding else SharedBatchNorm(hidden)
        self.outer = nn.Linear(hidden, embedding_size)

    def forward(self, rows: Tensor, *, zeros: int = 0) -> Tensor:
        """(rows, D). rows: (rows, width), the real regions only. zeros: rows of zeros that the statistics count too."""
        read = rows if zeros == 0 else torch.cat((rows, rows.new_zeros(zeros, rows.shape[1])))
        hidden = normalize_rows(self.norm, self.inner(read))[: len(rows)]
        out: Tensor = self.outer(hidden.relu())
        return out


_SOFTNESS = 0.1
_WAVELENGTHS = 10_000.0


class GeneralisedPooling(nn.Module):
    """Pools a set of vectors: each dimension sorted, largest first, then summed with weights theta.

    theta depends on the size of the set alone; (1, 0, ...) is max pooling, equal weights are mean pooling. size: of
    the positional encoding and of the Bi-GRU that turns positions into weights.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self.gru = nn.GRU(size, size, batch_first=True, bidirectional=True)
        self.score = nn.Linear(size, 1, bias=False)

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        """(N, D). features: (N, K, D); mask: (N, K) bool, True for real elements, at least one per set, at any
        position; this waits for a GPU unless the mask is on the host.

        Works in float32 or wider also under autocast: sorting in bfloat16 would make different values equal.
        """
        with torch.autocast(features.device.type, enabled=False):
            here = mask.cpu()
            sizes, row_of = torch.unique(here.sum(dim=1), return_inverse=True)
            weights = self.weights(sizes)[beside(row_of, features)]
            return sum_of_sorted(at_least_float32(features), beside(here, features), weights)

    def weights(self, sizes: Tensor) -> Tensor:
        """(U, largest size) theta of each set size: non-negative, sums to 1, 0 behind the size. sizes: on the host."""
        longest, weight = int(sizes.max()), self.score.weight
        encoding = beside(positional_encoding(longest, self._size).to(weight.dtype), weight)
        states = unpack(run_gru(self.gru, pack(encoding.expand(len(sizes), -1, -1), sizes))[0])
        forward, backward = states.chunk(2, dim=-1)
        scores = self.score((forward + backward) / 2).squeeze(-1)
        is_behind = beside(torch.arange(longest) >= sizes[:, None], scores)
        weights: Tensor = (scores / _SOFTNESS).masked_fill(is_behind, float("-inf")).softmax(dim=-1)
        return weights


def sum_of_sorted(features: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
    """(N, D): sum over k of weights[:, k] times the k-th largest real value of each dimension.

    features: (N, K, D); mask: (N, K) bool; weights: (N, up to K), 0 behind the number of real elements.
    """
    hidden = features.masked_fill(~mask[..., None], float("-inf"))
    # on a CPU sorting along the last axis is faster than along the middle one, the copy included
    ranked = hidden.transpose(1, 2).contiguous().sort(dim=-1, descending=True).values[..., : weights.shape[1]]
    is_behind = torch.arange(weights.shape[1], device=mask.device) >= mask.sum(dim=1, keepdim=True)
    ranked = ranked.masked_fill(is_behind[:, None], 0.0)
    return (ranked @ weights[..., None]).squeeze(-1)


def positional_encoding(positions: int, size: int) -> Tensor:
    """(positions, size) float64: sine in even, cosine in odd columns, wavelengths up to 10,000 positions."""
    frequencies = torch.exp(torch.arange(0, size, 2, dtype=torch.float64) * (-math.log(_WAVELENGTHS) / size))
    steps = torch.arange(positions)[:, None] * frequencies
    return torch.stack((steps.sin(), steps.cos()), dim=-1).flatten(start_dim=1)


MASK_TOKEN = 4
"""Id of the mask word in every vocabulary."""

_MASKED, _REPLACED = 0.5, 0.1
"""Shares of the selected words; the rest is deleted (as in the released code, despite its comment `kept`)."""
_ITSELF = -1
"""In place of an id that stays."""
_WHOLE_GRID = 0.2
"""Share of images that keep all their cells in grid mode."""


def drop_regions(mask: Tensor, probability: float) -> Tensor:
    """The mask with each region left out independently; at least one region of an image stays.

    mask: (images, regions) bool, True for real regions, on the host.
    """
    return _thinned(mask, torch.full((len(mask), 1), probability))


def drop_cells(mask: Tensor, probability: float) -> Tensor:
    """The grid rule: an image draws rho from U(0, 1); above 0.2 each cell is left out with probability x rho."""
    rho = torch.rand(len(mask), 1)
    return _thinned(mask, torch.where(rho > _WHOLE_GRID, probability * rho, 0.0))


def _thinned(mask: Tensor, probability: Tensor) -> Tensor:
    draws = torch.rand(mask.shape).masked_fill(~mask, -1.0)
    is_kept = (draws >= probability) & mask
    # the largest draw is kept whenever anything is, so keeping it always changes only images that would lose all
    return is_kept.scatter(1, draws.argmax(dim=1, keepdim=True), True)


def drop_words(tokens: Tensor, lengths: Tensor, *, probability: float, vocabulary_size: int) -> tuple[Tensor, Tensor]:
    """Captions with words masked (50 % of those selected), replaced by any word (10 %) or deleted (40 %).

    tokens: (captions, words); lengths: (captions,), on the host. Start and end are words like others. Returns new
    tokens of the same shape, the kept words moved to the front, and new lengths, on the host; at least one word of a
    caption stays.
    """
    may_change = word_mask(lengths, tokens.shape[1])
    starts = torch.arange(tokens.shape[1]).expand(tokens.shape)
    return _changed(tokens, lengths, may_change, starts, probability, mask=MASK_TOKEN, vocabulary_size=vocabulary_size)


def drop_word_pieces(
    tokens: Tensor, lengths: Tensor, *, probability: float, mask: int, fixed: Sequence[int], continues: Tensor
) -> tuple[Tensor, Tensor]:
    """As `drop_words`, for words of several pieces: all pieces of a word are treated alike, each replaced by its own
    random id. The word boundaries are read from the tokens, which waits for a GPU if they are there.

    mask: id of [MASK]. fixed: ids that never change ([CLS], [SEP]). continues: (vocabulary,) bool, True for pieces that
    are not the first of their word, on the host. At least one word of a caption that has any stays.
    """
    here = tokens.cpu()
    may_change = word_mask(lengths, tokens.shape[1]) & ~torch.isin(here, torch.tensor(fixed))
    positions = torch.arange(tokens.shape[1]).expand(tokens.shape)
    starts = torch.where(continues[here] & may_change, 0, positions).cummax(dim=1).values
    return _changed(
        tokens, lengths, may_change, starts, probability, mask=mask, vocabulary_size=len(continues)
    )


def _changed(
    tokens: Tensor, lengths: Tensor, may_change: Tensor, starts: Tensor, probability: float, *, mask: int,
    vocabulary_size: int,
) -> tuple[Tensor, Tensor]:
    """may_change: (captions, ids) bool. starts: (captions, ids) position of the first piece of each id's word. All but
    the tokens is on the host."""
    is_real = word_mask(lengths, tokens.shape[1])
    is_selected = (torch.rand(tokens.shape).gather(1, starts) < probability) & may_change
    fate = torch.rand(tokens.shape).gather(1, starts)
    random_words = torch.randint(1, vocabulary_size, tokens.shape)
    instead = torch.full(tokens.shape, _ITSELF).masked_fill(is_selected & (fate < _MASKED), mask)
    is_replaced = is_selected & (fate >= _MASKED) & (fate < _MASKED + _REPLACED)
    instead = torch.where(is_replaced, random_words, instead)
    is_kept = is_real & ~(is_selected & (fate >= _MASKED + _REPLACED))
    # a caption that would lose everything keeps the word whose fate was nearest to staying
    least_lost = fate.masked_fill(~may_change, 2.0).argmin(dim=1, keepdim=True)
    is_saved = may_change & (starts == starts.gather(1, least_lost))
    has_word = (is_kept & may_change).any(dim=1, keepdim=True)
    is_kept = torch.where(has_word, is_kept, is_kept | is_saved)
    new_lengths = is_kept.sum(dim=1)
    to_front = (~is_kept).to(torch.uint8).argsort(dim=1, stable=True)
    instead = instead.gather(1, to_front).masked_fill(~word_mask(new_lengths, tokens.shape[1]), 0)
    to_front, instead = beside(torch.stack((to_front, instead)), tokens)
    return torch.where(instead == _ITSELF, tokens.gather(1, to_front), instead), new_lengths
