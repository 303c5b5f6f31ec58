"""Matches of words and regions in blocks, propagated along two graphs (GSMN; Liu et al. 2020, 3.2 and 3.3)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.checkpoint import checkpoint

from vsetune.networks.network_base import word_mask

KEPT_PER_SIMILARITY = 3
"""Numbers that `matches` stores by default for its backward pass: a block similarity and both products with Gram
matrices."""

_PAIRS_AT_ONCE = 32
"""Captions of a group, of similar length: little is computed for padding, and their intermediate values (2 MB at 36
regions, 16 blocks and 29 words) stay in the processor's cache."""

_SLOPE = 0.1
_SMALLEST = 1e-8
_SMALLEST_SQUARE = 1e-24  # keeps the gradient of a root finite at 0


@dataclass(frozen=True)
class Side:
    """Regions of N images or words of C captions, P parts each, prepared for matching.

    blocks: (B, P, n, E), zero where padded. norms: (B, P, n) lengths of the blocks. grams: (n, B, P, P). mask: (P, n)
    bool, True for real parts.
    """

    blocks: Tensor
    norms: Tensor
    grams: Tensor
    mask: Tensor


def prepared(parts: Tensor, lengths: Tensor, blocks: int) -> Side:
    """parts: (n, P, D), zero where padded; lengths: (n,) real parts."""
    by_item = parts.reshape(*parts.shape[:2], blocks, -1).transpose(1, 2)
    split = by_item.permute(1, 2, 0, 3).contiguous()
    mask = torch.arange(parts.shape[1], device=lengths.device)[:, None] < lengths
    grams = by_item @ by_item.transpose(2, 3)
    return Side(split, torch.linalg.vector_norm(split, dim=-1), grams, mask)


def matches(
    images: Side, captions: Sequence[Side], scale: float, *, is_kept: bool = True
) -> list[tuple[Tensor, Tensor]]:
    """For each group of captions: matches of regions (B, C, R, N) and of words (B, L, C, N), in [-1, 1].

    Arbitrary where padded. scale: lambda, multiplies the normalised similarities in both softmaxes. Groups are
    processed one by one: without a gradient, tensors as large as the block similarities (B, L, C, R, N) of a group
    exist for that group alone. With a gradient, KEPT_PER_SIMILARITY are stored; not is_kept: none, and all is computed
    twice.
    """
    if is_kept:
        return [_matches(images, side, scale) for side in captions]
    return [
        checkpoint(_matches, images, side, scale, use_reentrant=False, preserve_rng_state=False) for side in captions
    ]


def _matches(images: Side, captions: Side, scale: float) -> tuple[Tensor, Tensor]:
    raw = _block_similarities(images.blocks, captions.blocks)
    over_words, over_regions = attentions(raw.sum(dim=0), captions.mask, images.mask, scale)
    # R N and L C as one dimension each
    region_squares = _quadratic_forms(over_words.transpose(0, 1).flatten(2), captions.grams)
    word_squares = _quadratic_forms(over_regions.permute(3, 2, 0, 1).flatten(2).contiguous(), images.grams)
    region_squares = region_squares.view(*region_squares.shape[:2], *images.mask.shape).transpose(0, 1)
    word_squares = word_squares.view(*word_squares.shape[:2], *captions.mask.shape).permute(1, 2, 3, 0)
    region_dots, word_dots = (raw * over_words).sum(dim=1), _times(raw, over_regions).sum(dim=3)
    return (
        _cosines(region_dots, region_squares, images.norms[:, None]),
        _cosines(word_dots, word_squares, captions.norms[..., None]),
    )


@dataclass(frozen=True)
class PairSide:
    """Regions of N images or words of M captions, prepared for the matches of few pairs.

    blocks: (n, B, P, E), zero where padded. norms: (n, B, P). grams: (n, B, P, P). mask: (n, P) bool, True for real
    parts.
    """

    blocks: Tensor
    norms: Tensor
    grams: Tensor
    mask: Tensor


def prepared_for_pairs(parts: Tensor, lengths: Tensor, blocks: int) -> PairSide:
    """As `prepared`."""
    split = parts.reshape(*parts.shape[:2], blocks, -1).transpose(1, 2).contiguous()
    mask = torch.arange(parts.shape[1], device=lengths.device) < lengths[:, None]
    return PairSide(split, torch.linalg.vector_norm(split, dim=-1), split @ split.mT, mask)


def pair_matches(
    images: PairSide, captions: PairSide, rows: Tensor, columns: Tensor, scale: float
) -> Iterator[tuple[Tensor, Tensor]]:
    """As `matches` of the images rows (P,) with the captions columns (P,), longest captions first: for each of some
    groups of the pairs, in order, (pairs, B, R) and (pairs, B, words of the longest)."""
    lengths = captions.mask.sum(dim=1)
    for row, column in zip(torch.split(rows, _PAIRS_AT_ONCE), torch.split(columns, _PAIRS_AT_ONCE), strict=True):
        longest, region_grams = int(lengths[column[0]]), images.grams.index_select(0, row)
        words = captions.blocks[..., :longest, :].index_select(0, column)
        raw = words @ images.blocks.index_select(0, row).mT
        is_word, is_region = captions.mask[column, :longest], images.mask[row]
        word_grams = captions.grams[..., :longest, :longest].index_select(0, column)
        last = raw.sum(dim=1).permute(1, 2, 0)[:, None]  # (L, 1, R, P)
        found = attentions(last, is_word.T[:, None, None], is_region.T, scale)
        over_words, over_regions = (weights.squeeze(1).permute(2, 0, 1) for weights in found)  # (P, L, R)
        region_squares = _quadratic_forms(over_words, word_grams)
        word_squares = _quadratic_forms(over_regions.mT, region_grams)
        region_dots, word_dots = (raw * over_words[:, None]).sum(dim=2), (raw * over_regions[:, None]).sum(dim=3)
        yield (
            _cosines(region_dots, region_squares, images.norms[row]),
            _cosines(word_dots, word_squares, captions.norms[column, :, :longest]),
        )


def _block_similarities(regions: Tensor, words: Tensor) -> Tensor:
    """(B, L, C, R, N). regions: (B, R, N, E); words: (B, L, C, E)."""
    flat = words.flatten(1, 2) @ regions.flatten(1, 2).mT
    return flat.view(*words.shape[:3], *regions.shape[1:3])


def _quadratic_forms(weights: Tensor, grams: Tensor) -> Tensor:
    """(n, B, X): a G a for every column a of weights (n, P, X); grams: (n, B, P, P)."""
    products = (grams.flatten(1, 2) @ weights).view(*grams.shape[:3], -1)
    return _times(products, weights[:, None]).sum(dim=2)


def _times(values: Tensor, factors: Tensor) -> Tensor:
    """The products, which overwrite values that are no longer needed where there is no gradient."""
    return values * factors if torch.is_grad_enabled() else values.mul_(factors)


def _cosines(dots: Tensor, squares: Tensor, norms: Tensor) -> Tensor:
    return dots / (norms * squares.clamp_min(_SMALLEST**2).sqrt()).clamp_min(_SMALLEST)


def attentions(raw: Tensor, words: Tensor, regions: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Weights (L, C, R, N) with which a region attends to words, and a word to regions.

    raw: (L, C, R, N) dot products, 0 where padded. words: (L, C), or (L, 1, 1, N), and regions: (R, N), bool, True for
    real ones. The attended items are first normalised over the attending ones: each word over the regions, each region
    over the words.
    """
    if words.ndim == 2:
        words = words[..., None, None]
    leaky = functional.leaky_relu(raw, _SLOPE)
    squares = leaky.square()
    to_words = leaky * (scale / (_root(squares.sum(dim=2, keepdim=True)) + _SMALLEST))
    to_regions = leaky * (scale / (_root(squares.sum(dim=0, keepdim=True)) + _SMALLEST))
    return (
        to_words.masked_fill(~words, float("-inf")).softmax(dim=0),
        to_regions.masked_fill(~regions, float("-inf")).softmax(dim=2),
    )


def _root(squares: Tensor) -> Tensor:
    return squares.clamp_min(_SMALLEST_SQUARE).sqrt()


_SMALLEST_VARIANCE = 1e-14


def word_links(words: Tensor, lengths: Tensor, dependencies: Tensor | None, scale: float) -> Tensor:
    """(C, L, L) weights with which word i gathers from word j: softmax of scale x w_i . w_j, 0 where padded.

    words: (C, L, D) unit vectors; lengths: (C,). dependencies: (C, L, L) bool restricts them to the words joined to i,
    and i. The paper multiplies the weights by a learned number per kernel, normalises them by length (sparse) and then
    by their sum: neither step changes their ratios, and the result equals this softmax.
    """
    itself = torch.eye(words.shape[1], dtype=torch.bool, device=words.device)
    is_real = word_mask(lengths, words.shape[1])
    joined = is_real[:, None] & (True if dependencies is None else dependencies)
    logits = (scale * (words @ words.transpose(1, 2))).masked_fill(~(joined | itself), float("-inf"))
    return logits.softmax(dim=-1) * is_real[..., None]


class BoxKernels(nn.Module):
    """Gaussian kernels over distance and direction from one box centre to another."""

    def __init__(self, kernels: int, *, normalized_over: str) -> None:
        super().__init__()
        self._normalized_over = normalized_over
        self.mean_distance = nn.Parameter(torch.empty(kernels).uniform_(0.0, 1.0))
        self.mean_angle = nn.Parameter(torch.empty(kernels).uniform_(-math.pi, math.pi))
        self.width_distance = nn.Parameter(torch.empty(kernels).uniform_(0.0, 1.0))
        self.width_angle = nn.Parameter(torch.empty(kernels).uniform_(0.0, 1.0))

    def forward(self, centres: Tensor, mask: Tensor) -> Tensor:
        """(N, K, R, R) weights, 0 where padded. centres: (N, R, 2) x, y; mask: (N, R) bool, True for real regions.

        Weights of the edge i, j sum to 1 over the kernels (`kernels`), or those of a node over its neighbours j. Taken
        as a softmax of log kernels, which stays finite where all kernels underflow; the reference divides 0 by 0.
        """
        offsets = centres[:, None, :, None] - centres[:, None, None]  # (N, 1, R, R, 2), from j to i
        distance = torch.linalg.vector_norm(offsets, dim=-1)
        angle = torch.atan2(offsets[..., 0], offsets[..., 1])  # from the y axis, as in the reference
        turn = (angle - self.mean_angle[:, None, None]).abs()
        turn = torch.minimum(turn, (2 * math.pi - turn).abs())
        logs: Tensor = -(distance - self.mean_distance[:, None, None]).square() / self._doubled(self.width_distance)
        logs = logs - turn.square() / self._doubled(self.width_angle)
        pairs = mask[:, None, :, None] & mask[:, None, None]
        if self._normalized_over == "neighbours":
            itself = torch.eye(centres.shape[1], dtype=torch.bool, device=centres.device)
            return logs.masked_fill(~(pairs | itself), float("-inf")).softmax(dim=-1) * pairs
        return logs.softmax(dim=1) * pairs

    def _doubled(self, width: Tensor) -> Tensor:
        return 2 * (width.square() + _SMALLEST_VARIANCE)[:, None, None]


class RegionPropagation(nn.Module):
    """x_i = concatenation over kernels k of W_k applied to what node i gathers under kernel k; no bias."""

    def __init__(self, *, blocks: int, kernels: int, hidden_size: int, variant: str) -> None:
        super().__init__()
        self._features = hidden_size // kernels
        self._variant = variant
        self.map = nn.Linear(blocks, hidden_size, bias=False)

    def forward(self, found: Tensor, edges: Tensor) -> Tensor:
        """(N, H, C, R). found: (N, B, C, R) matches of regions; edges: (N, K, R, R), 0 where padded."""
        number, _, captions, regions = found.shape
        # W_k came first and gathering follows: both are linear, and this order is cheaper
        mapped = mapped_features(self.map, found.flatten(2)).view(*edges.shape[:2], -1, regions)  # (N, K, F C, R)
        gathered = mapped * edges.sum(dim=-1)[:, :, None] if self._variant == "released" else mapped @ edges.mT
        return gathered.view(number, -1, captions, regions)

    def of_pairs(self, found: Tensor, edges: Tensor) -> Tensor:
        """(P, R, H). found: (P, R, B), of image p with one caption; edges: (P, K, R, R)."""
        mapped: Tensor = self.map(found).unflatten(-1, (-1, self._features)).transpose(1, 2)  # (P, K, R, F)
        gathered = mapped * edges.sum(dim=-1, keepdim=True) if self._variant == "released" else edges @ mapped
        return gathered.transpose(1, 2).flatten(2)


class WordPropagation(nn.Module):
    """x_i = W times what word i gathers, plus bias; all kernels gather the same (see `word_links`), so W holds all."""

    def __init__(self, *, blocks: int, hidden_size: int) -> None:
        super().__init__()
        self.map = nn.Linear(blocks, hidden_size)

    def forward(self, found: Tensor, links: Tensor | None) -> Tensor:
        """(C, L, H, N). found: (C, L, B, N) matches of words; links: (C, L, L), or None if each keeps its own."""
        if links is not None:
            found = (links @ found.flatten(2)).view_as(found)
        return mapped_features(self.map, found.flatten(0, 1)).view(*found.shape[:2], -1, found.shape[3])

    def of_pairs(self, found: Tensor, links: Tensor | None) -> Tensor:
        """(P, L, H). found: (P, L, B), of caption p with one image; links: (P, L, L), or None."""
        nodes: Tensor = self.map(found if links is None else links @ found)
        return nodes


class NodeScores(nn.Module):
    """Linear, tanh, linear to one number, both weight-normalised."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.inner = weight_norm(nn.Linear(hidden_size, hidden_size))
        self.outer = weight_norm(nn.Linear(hidden_size, 1))

    def forward(self, nodes: Tensor) -> Tensor:
        """(n, X). nodes: (n, H, X)."""
        return mapped_features(self.outer, mapped_features(self.inner, nodes).tanh_()).squeeze(1)

    def of_rows(self, nodes: Tensor) -> Tensor:
        """(...). nodes: (..., H)."""
        scores: Tensor = self.outer(self.inner(nodes).tanh_())
        return scores.squeeze(-1)


def mapped_features(linear: nn.Linear, values: Tensor) -> Tensor:
    """(n, features out, X): the linear map applied to values (n, features in, X), where they lie."""
    weight = linear.weight.expand(len(values), -1, -1)
    if linear.bias is None:
        return torch.bmm(weight, values)
    return torch.baddbmm(linear.bias[:, None], weight, values)
