"""Intervals over units and images: plain loops, a bootstrap of images with their captions, and simulated coverage."""

from __future__ import annotations

import math

import interval_coverage
import numpy as np
import pytest
import torch
from scipy import stats

from vsetune.metrics.image_intervals import ImageHits, interval_with_images
from vsetune.metrics.ranks import QueryRanks, RetrievalRanks
from vsetune.metrics.repeated_searches import welch
from vsetune.metrics.seed_statistics import mean_interval

OWNER = [0, 0, 1, 1, 1, 2, 3, 3, 3, 3, 3, 4]


def hits(seed: int, owner: list[int] | None = None) -> ImageHits:
    rng, owner = np.random.default_rng(seed), owner or OWNER
    ranks = [torch.tensor(rng.integers(0, 14, size=size)) for size in (max(owner) + 1, len(owner))]
    image_to_text, text_to_image = (QueryRanks(each, torch.zeros(len(each), dtype=torch.bool), 0) for each in ranks)
    return ImageHits.of_ranks(RetrievalRanks(image_to_text, text_to_image), torch.tensor(owner))


def m_recall_by_loops(found: ImageHits, chosen: list[int]) -> float:
    """M-Recall of these images with their captions, an image as often as it is chosen."""
    of_image = sum(found.of_image[image] for image in chosen) / len(chosen)
    of_captions = sum(found.of_captions[image] for image in chosen) / sum(found.captions[image] for image in chosen)
    return 50 * float(of_image + of_captions)


def test_contributions_average_to_m_recall_with_any_number_of_captions() -> None:
    found = hits(0)
    assert found.captions.tolist() == [2, 3, 1, 5, 1]
    assert found.m_recall == pytest.approx(m_recall_by_loops(found, list(range(5))))
    assert found.none.m_recall == 0
    ranks = RetrievalRanks(*(
        QueryRanks(torch.tensor(each), torch.zeros(len(each), dtype=torch.bool), 0) for each in ([0, 4], [1, 9, 10])
    ))
    by_hand = ImageHits.of_ranks(ranks, torch.tensor([1, 0, 1]))
    assert by_hand.of_image.tolist() == pytest.approx([1, 2 / 3])
    assert by_hand.of_captions.tolist() == pytest.approx([1 / 3, 2 / 3])


def test_the_error_of_images_is_that_of_a_bootstrap_of_images_with_their_captions() -> None:
    rng = np.random.default_rng(1)
    owner = np.repeat(np.arange(120), rng.integers(1, 8, size=120)).tolist()
    found = hits(2, owner)
    resampled = [m_recall_by_loops(found, rng.integers(120, size=120).tolist()) for _ in range(4000)]
    error = math.sqrt(found.contributions.var(ddof=1) / 120)
    assert error == pytest.approx(np.std(resampled), rel=0.05)


def by_loops(sides: list[list[list[float]]]) -> tuple[float, float]:
    """The formula of `interval_with_images`, a sum at a time. sides[side][unit][image]."""
    images, center, by_unit, squared, both = len(sides[0][0]), 0.0, 0.0, 0.0, 0.0
    for side in sides:
        units = len(side)
        of_unit = [sum(unit) / images for unit in side]
        of_image = [sum(unit[image] for unit in side) / units for image in range(images)]
        mean = sum(of_unit) / units
        center += mean
        error = sum((each - mean) ** 2 for each in of_unit) / (units - 1) / units
        by_unit, squared = by_unit + error, squared + error**2 / (units - 1)
        left = [
            side[unit][image] - of_unit[unit] - of_image[image] + mean
            for unit in range(units) for image in range(images)
        ]
        both += sum(each**2 for each in left) / ((units - 1) * (images - 1)) / (units * images)
    summed = [sum(sum(unit[image] for unit in side) / len(side) for side in sides) for image in range(images)]
    by_image = sum((each - center) ** 2 for each in summed) / (images - 1) / images
    freedom = min(by_unit**2 / squared, len(sides) * (min(map(len, sides)) - 1))
    t_units, t_images = stats.t.ppf(0.975, [freedom, images - 1])
    half = math.sqrt(t_units**2 * by_unit + t_images**2 * max(0.0, by_image - both))
    return center - half, center + half


def test_intervals_are_those_of_plain_loops_and_contain_those_over_units() -> None:
    rng = np.random.default_rng(3)
    difficulty = rng.normal(size=(7, 1, 9))
    one, other = (rng.normal(50, 1, size=(7, units, 1)) + rng.normal(size=(7, units, 9)) for units in (3, 4))
    for own in (0.0, 3.0):
        ours = one + own * difficulty
        low, high = interval_with_images([ours, -other])
        for study in range(7):
            by_hand = by_loops([ours[study].tolist(), (-other[study]).tolist()])
            assert (low[study], high[study]) == pytest.approx(by_hand)
            over_units = welch(ours[study].mean(axis=1).tolist(), other[study].mean(axis=1).tolist())
            assert low[study] <= over_units.low + 1e-9
        alone = interval_with_images([ours])
        assert (alone[0] <= mean_interval(ours.mean(axis=-1))[0] + 1e-9).all()
        assert (alone[0][2], alone[1][2]) == pytest.approx(by_loops([ours[2].tolist()]))


def test_without_deviation_of_units_there_is_no_interval() -> None:
    rows = np.array([[1.0, 2.0, 3.0], [3.0, 1.0, 2.0]])
    for sides in ([rows], [rows[:1]], [rows, -rows[:1]]):
        assert np.isnan(interval_with_images(sides)).all()


def test_coverage_by_hits_is_that_of_a_plain_loop() -> None:
    latent = np.random.default_rng(4).normal(size=(2, 3, 4, 3)).astype(np.float32)
    found = interval_coverage.contributions_of(latent)
    for place in np.ndindex(2, 3, 4):
        image, *captions = (
            sum(value < cut for cut in interval_coverage.CUTS) / 3 for value in latent[place].tolist()
        )
        assert found[place] == pytest.approx(50 * (image + sum(captions) / 2), abs=1e-4)


def test_the_interval_with_images_covers_what_it_states() -> None:
    """300 studies: a share of 95 % is known to 2.5 points in 95 of 100 cases."""
    found = interval_coverage.image_coverage(share=0.1, images=500, units=5, studies=300)
    assert found["and images"] >= 0.915
    assert found["over units"] <= 0.87
