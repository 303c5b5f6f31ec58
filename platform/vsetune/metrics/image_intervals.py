"""Intervals over seeds, or searches, and over the images that they were scored on.

Every unit (a seed, or a search of a tuned loss) is scored on the same images, so units and images are crossed. An image
is taken with its captions: they are hit or missed together. Formulas and their coverage: docs/statistics.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy
import torch
from torch import Tensor

from vsetune.metrics.ranks import RetrievalRanks
from vsetune.metrics.seed_statistics import LEVEL, Floats, deviate

_CUTOFFS = (1, 5, 10)


@dataclass(frozen=True)
class ImageHits:
    """The hits of one network, by image, (N,) each.

    of_image: mean over K = 1, 5, 10 of whether the image finds one of its captions among the first K, 0 to 1.
    of_captions: sum over the captions of the image of the same for the caption, 0 to their number. captions: their
    number, at least 1.
    """

    of_image: Floats
    of_captions: Floats
    captions: Floats

    @classmethod
    def of_ranks(cls, ranks: RetrievalRanks, owner: Tensor) -> ImageHits:
        """ranks: of all N images and all M captions. owner: (M,) int64, row of each caption's image."""
        of_image, of_caption = (
            torch.stack([way.ranks < cutoff for cutoff in _CUTOFFS]).double().mean(dim=0)
            for way in (ranks.image_to_text, ranks.text_to_image)
        )
        images = len(of_image)
        sums = torch.bincount(owner, weights=of_caption, minlength=images)
        return cls(*(
            np.asarray(each.cpu(), dtype=np.float64)
            for each in (of_image, sums, torch.bincount(owner, minlength=images))
        ))

    @property
    def none(self) -> ImageHits:
        """The same images and captions without any hit, as a training counts that diverged."""
        return ImageHits(np.zeros_like(self.of_image), np.zeros_like(self.of_captions), self.captions)

    @property
    def contributions(self) -> Floats:
        """(N,) what each image contributes to M-Recall, per cent: their mean is M-Recall.

        R@K of captions is a ratio of two sums over images. Its share is linear in the image (delta method), which is
        exact where all images have equally many captions.
        """
        recall = self.of_captions.sum() / self.captions.sum()
        by_caption = recall + (self.of_captions - recall * self.captions) / self.captions.mean()
        total: Floats = 50 * (self.of_image + by_caption)
        return total

    @property
    def m_recall(self) -> float:
        """Per cent."""
        return float(self.contributions.mean())


def interval_with_images(sides: Sequence[npt.ArrayLike], level: float = LEVEL) -> tuple[Floats, Floats]:
    """Interval of the sum of the means of the sides, over all possible units and all possible images.

    sides: of independent units, (..., units, images) each, with the same images in the same order. One side of
    contributions gives the interval of an M-Recall; one side of the differences of paired seeds, or two sides of which
    the second is negative, that of a difference. NaN where a side has one unit, or no units deviate.

    The variance of a mean over crossed units and images is V_units + V_images - V_both: the squared standard errors of
    the mean of units and of the mean of images, less the part that is in both (Cameron, Gelbach and Miller 2011; Owen
    2007). All three are unbiased for any number of units. The half widths of the parts are added as squares,
    t^2 V_units + t^2 (V_images - V_both), each with its own degrees of freedom (as Howe 1974; those of units at most as
    in `repeated_searches.welch`), so the interval is never narrower than that over units alone. With one t for both, by
    Satterthwaite's degrees, two or three pairs of seeds cover too little. A bootstrap that resamples units and images
    counts V_both three times and covers too much.
    """
    rows = [np.asarray(side, dtype=np.float64) for side in sides]
    images = rows[0].shape[-1]
    means = [side.mean(axis=-1) for side in rows]
    center = sum(mean.mean(axis=-1) for mean in means)
    if min(mean.shape[-1] for mean in means) < 2:
        return np.full_like(center, np.nan), np.full_like(center, np.nan)
    errors = [mean.var(axis=-1, ddof=1) / mean.shape[-1] for mean in means]
    of_units = sum(errors)
    of_images = sum(side.mean(axis=-2) for side in rows).var(axis=-1, ddof=1) / images
    both = sum(_interaction(side) / (side.shape[-2] * images) for side in rows)
    known = np.any([deviate(mean) for mean in means], axis=0)
    by_side = sum(error**2 / (mean.shape[-1] - 1) for error, mean in zip(errors, means, strict=True))
    most = len(means) * (min(mean.shape[-1] for mean in means) - 1)
    freedom = np.minimum(np.where(known, of_units, 1.0) ** 2 / np.where(known, by_side, 1.0), most)
    t_units, t_images = (scipy.special.stdtrit(each, (1 + level) / 2) for each in (freedom, images - 1))
    half = np.sqrt(t_units**2 * of_units + t_images**2 * np.maximum(of_images - both, 0.0))
    half = np.where(known, half, np.nan)
    return center - half, center + half


def _interaction(side: Floats) -> Floats:
    """Mean square of what is left of each number after the means of its unit and of its image. (..., units, images)"""
    units, images = side.shape[-2:]
    of_unit, of_image = side.mean(axis=-1, keepdims=True), side.mean(axis=-2, keepdims=True)
    left = side - of_unit - of_image + of_unit.mean(axis=-2, keepdims=True)
    square: Floats = np.square(left).sum(axis=(-2, -1)) / ((units - 1) * (images - 1))
    return square
