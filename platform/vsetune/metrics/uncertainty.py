"""How sure a retrieval number is where images could have been others too: resampled images, and pairs of seeds.

An image is resampled together with all its captions, because captions of one image are not independent. Ranks are kept
(the candidates stay the whole set), only the queries are drawn again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import scipy
import torch
from torch import Tensor

_CUTOFFS = (1, 5, 10)
_PAIRS = 3
"""Of seeds, for an interval over seeds and images; that of two covered 91 % instead of 95."""
_MANY = 1e9
"""Degrees of freedom of a normal distribution, to the last digit."""


@dataclass(frozen=True)
class Interval:
    """A value with its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class ImageHits:
    """Recall of one trained network, image by image, ready to be resampled.

    image_hits: (N,) number of cutoffs (1, 5, 10) the image query meets, 0 to 3. caption_hits: (N,) sum of the same over
    the image's captions. captions: (N,) captions of the image. All float64.
    """

    image_hits: Tensor
    caption_hits: Tensor
    captions: Tensor

    @classmethod
    def of_ranks(cls, image_ranks: Tensor, caption_ranks: Tensor, owner: Tensor) -> ImageHits:
        """image_ranks: (N,), caption_ranks: (M,), both 0-based; owner: (M,) image of each caption."""
        size = image_ranks.numel()
        return cls(
            image_hits=_cutoffs_met(image_ranks),
            caption_hits=torch.bincount(owner, weights=_cutoffs_met(caption_ranks), minlength=size),
            captions=torch.bincount(owner, minlength=size).double(),
        )

    def m_recall(self, draws: Tensor) -> Tensor:
        """(resamples,) M-Recall in per cent of the images drawn. draws: (resamples, N) int64 image indices."""
        i2t = self.image_hits[draws].mean(dim=1)
        t2i = self.caption_hits[draws].sum(dim=1) / self.captions[draws].sum(dim=1)
        return 100 * (i2t + t2i) / (2 * len(_CUTOFFS))


def m_recall_interval(hits: ImageHits, *, resamples: int, level: float, seed: int) -> Interval:
    """M-Recall of one trained network with its percentile interval over resampled images.

    level: coverage, e.g. 0.95. seed: of the resampling.
    """
    size = hits.captions.numel()
    draws = torch.randint(size, (resamples, size), generator=torch.Generator().manual_seed(seed))
    return _interval(hits.m_recall(torch.arange(size)[None, :])[0], hits.m_recall(draws), level)


def m_recall_difference_interval(
    pairs: Sequence[tuple[ImageHits, ImageHits]], *, resamples: int, level: float, seed: int
) -> Interval:
    """Mean M-Recall of the first minus the second over seed pairs, for other seeds and other images alike.

    pairs: (new, baseline) of equal seed, at least three, all scored on the same images. Its variance is that of seeds,
    over their number, and that of resampled images, less what seeds and images have in common and both count (two-way
    clustering, Cameron, Gelbach and Miller 2011); Student's t with Satterthwaite's degrees of freedom (1946), at least
    those of the seeds. Raises ValueError for fewer pairs or if the numbers of images differ.
    """
    sizes = {hits.captions.numel() for pair in pairs for hits in pair}
    if len(sizes) != 1:
        raise ValueError(f"difference: got {len(pairs)} seed pairs over {sorted(sizes)} images, need the same images")
    if len(pairs) < _PAIRS:
        raise ValueError(f"difference: got {len(pairs)} seed pairs, need at least {_PAIRS} for the coverage it states")
    size, count = sizes.pop(), len(pairs)
    draws = torch.randint(size, (resamples, size), generator=torch.Generator().manual_seed(seed))
    everything = torch.arange(size)[None, :]
    observed = torch.cat([new.m_recall(everything) - old.m_recall(everything) for new, old in pairs])
    resampled = torch.stack([new.m_recall(draws) - old.m_recall(draws) for new, old in pairs])
    of_images = resampled.mean(dim=0).var()
    of_seeds = observed.var() / count
    shared = (resampled - resampled.mean(dim=0)).var(dim=1).sum() / (count * (count - 1))
    variance = float(of_images + (of_seeds - shared).clamp(min=0))
    value = float(observed.mean())
    if not variance > 0:
        return Interval(value, value, value)
    freedom = (count - 1) * max(1.0, (variance / float(of_seeds)) ** 2) if of_seeds > 0 else math.inf
    half = float(scipy.special.stdtrit(min(freedom, _MANY), (1 + level) / 2)) * math.sqrt(variance)
    return Interval(value, value - half, value + half)


def _cutoffs_met(ranks: Tensor) -> Tensor:
    return (ranks[:, None] < ranks.new_tensor(_CUTOFFS)).sum(dim=1).double()


def _interval(value: Tensor, resampled: Tensor, level: float) -> Interval:
    tail = (1 - level) / 2
    low, high = resampled.quantile(resampled.new_tensor([tail, 1 - tail])).tolist()
    return Interval(float(value), low, high)
