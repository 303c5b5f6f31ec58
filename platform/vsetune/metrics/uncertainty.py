"""How sure a retrieval number is: bootstrap over images, and over pairs of seeds.

An image is resampled together with all its captions, because captions of one image are not independent. Ranks are kept
(the candidates stay the whole set), only the queries are drawn again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_CUTOFFS = (1, 5, 10)


@dataclass(frozen=True)
class Interval:
    """A value with its percentile bootstrap interval."""

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
    """M-Recall with its interval over resampled images. level: coverage, e.g. 0.95. seed: of the resampling."""
    size = hits.captions.numel()
    draws = torch.randint(size, (resamples, size), generator=torch.Generator().manual_seed(seed))
    return _interval(hits.m_recall(torch.arange(size)[None, :])[0], hits.m_recall(draws), level)


def m_recall_difference_interval(
    pairs: Sequence[tuple[ImageHits, ImageHits]], *, resamples: int, level: float, seed: int
) -> Interval:
    """Mean M-Recall of the first minus the second over seed pairs; pairs and images are resampled together.

    pairs: (new, baseline) of equal seed, all scored on the same images. Raises ValueError without pairs or if the
    numbers of images differ.
    """
    sizes = {hits.captions.numel() for pair in pairs for hits in pair}
    if len(sizes) != 1:
        raise ValueError(f"difference: got {len(pairs)} seed pairs over {sorted(sizes)} images, need the same images")
    size = sizes.pop()
    generator = torch.Generator().manual_seed(seed)
    draws = torch.randint(size, (resamples, size), generator=generator)
    chosen = torch.randint(len(pairs), (resamples, len(pairs)), generator=generator)
    everything = torch.arange(size)[None, :]
    observed = torch.stack([new.m_recall(everything) - old.m_recall(everything) for new, old in pairs])
    resampled = torch.stack([new.m_recall(draws) - old.m_recall(draws) for new, old in pairs])
    means = resampled.gather(0, chosen.T).mean(dim=0)
    return _interval(observed.mean(), means, level)


def _cutoffs_met(ranks: Tensor) -> Tensor:
    return (ranks[:, None] < ranks.new_tensor(_CUTOFFS)).sum(dim=1).double()


def _interval(value: Tensor, resampled: Tensor, level: float) -> Interval:
    tail = (1 - level) / 2
    low, high = resampled.quantile(resampled.new_tensor([tail, 1 - tail])).tolist()
    return Interval(float(value), low, high)
