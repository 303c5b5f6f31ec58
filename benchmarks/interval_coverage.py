"""How often the intervals of the leaderboard hold what they are about, in made-up studies whose truth is known.

    PYTHONPATH=platform python benchmarks/interval_coverage.py [STUDIES]

Makes STUDIES (default 4,000) studies in each of seven worlds: a baseline and a loss over ten pairs of seeds, their
M-Recall curves with noise of seeds and of validations. Of the first 1 to 10 pairs it takes what a board takes (mean
best M-Recall, its paired difference, median epochs to the baseline's best, median Difference, probability that a seed
improves) and counts how often the nominal 95 % interval holds the value of 100,000 pairs. Beside them: the percentile
bootstrap of the median that the board had before, and how often a loss is called different where none is.
Then studies whose losses differ in the images that they find hard, and the intervals over units alone and over units
and images, for the difference that further units would show on other images. Prints tables of docs/statistics.md.
Seeded; some three minutes on one core.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import special

from vsetune.metrics.image_intervals import interval_with_images
from vsetune.metrics.seed_statistics import LEVEL, improvement_interval, mean_interval, median_interval

Floats = npt.NDArray[np.float64]
SEEDS = 10
POPULATION = 100_000
CHUNK = 500
QUANTITIES = ("M-Recall", "its difference", "epochs to target", "Difference", "improvement")

BOOTSTRAP = "bootstrap of Difference"


@dataclass(frozen=True, kw_only=True)
class World:
    """Curves height (1 - exp(-epoch / pace)) plus noise.

    gain: of the loss over the baseline's height, in points. speed: its pace, in that of the baseline. height_noise: of
    seeds, points; half of its variance is shared by the pair. pace_noise: of the logarithm. validation_noise: points.
    gap, epochs: between validations, and of the whole training. falls: points that a seed falls short by, on average
    (exponential): a distribution with a long tail below. both_fall: else only the loss does.
    """

    name: str
    gain: float = 0.8
    speed: float = 0.75
    height_noise: float = 0.5
    pace_noise: float = 0.12
    validation_noise: float = 0.25
    gap: float = 0.1
    epochs: float = 10.0
    falls: float = 0.0


WORLDS = (
    World(name="usual"),
    World(name="noisy validations", validation_noise=1.0),
    World(name="half-epoch gaps", gap=0.5),
    World(name="a third censored", gain=0.15),
    World(name="long tail below", falls=0.7),
    World(name="still rising", epochs=5.0),
    World(name="no difference", gain=0.0, speed=1.0),
)


@dataclass(frozen=True)
class Measured:
    """Of pairs of seeds, (..., seeds) each. epochs_hit: of the loss to the baseline's best, infinite if never."""

    best: Floats
    baseline_best: Floats
    epochs_hit: Floats
    baseline_epochs: Floats
    horizon: float

    @property
    def gain(self) -> Floats:
        return self.best - self.baseline_best

    @property
    def difference(self) -> Floats:
        return 100 * (self.epochs_hit - self.baseline_epochs) / self.baseline_epochs

    @property
    def difference_at_least(self) -> Floats:
        return 100 * (np.minimum(self.epochs_hit, self.horizon) - self.baseline_epochs) / self.baseline_epochs

    def first(self, seeds: int) -> Measured:
        return replace(self, **{
            name: getattr(self, name)[..., :seeds]
            for name in ("best", "baseline_best", "epochs_hit", "baseline_epochs")
        })


def measured(world: World, shape: tuple[int, ...], rng: np.random.Generator) -> Measured:
    """So many pairs of seeds, drawn anew."""
    epochs = np.arange(1, round(world.epochs / world.gap) + 1) * world.gap
    shared = rng.normal(size=shape)
    curves = [
        _curves(world, gain, speed, shared, epochs, rng) for gain, speed in ((0.0, 1.0), (world.gain, world.speed))
    ]
    old, new = curves
    hits = new >= old.max(axis=-1)[..., None]
    return Measured(
        new.max(axis=-1), old.max(axis=-1), np.where(hits.any(axis=-1), epochs[hits.argmax(axis=-1)], np.inf),
        epochs[old.argmax(axis=-1)], float(epochs[-1]),
    )


def _curves(
    world: World, gain: float, speed: float, shared: Floats, epochs: Floats, rng: np.random.Generator
) -> Floats:
    own = rng.normal(size=shared.shape)
    height = 60 + gain + world.height_noise * (shared + own) / np.sqrt(2)
    if world.falls:
        height -= rng.exponential(world.falls, size=shared.shape)
    pace = 1.5 * speed * np.exp(world.pace_noise * rng.normal(size=shared.shape))
    clean = height[..., None] * (1 - np.exp(-epochs / pace[..., None]))
    noisy: Floats = clean + world.validation_noise * rng.normal(size=clean.shape)
    return noisy


def truths(world: World, rng: np.random.Generator) -> dict[str, float]:
    """The value of every quantity over the population."""
    parts = [measured(world, (CHUNK * 10,), rng) for _ in range(POPULATION // (CHUNK * 10))]
    gain = np.concatenate([part.gain for part in parts])
    return {
        "M-Recall": float(np.mean([part.best.mean() for part in parts])), "its difference": float(gain.mean()),
        "epochs to target": float(np.median(np.concatenate([part.epochs_hit for part in parts]))),
        "Difference": float(np.median(np.concatenate([part.difference for part in parts]))),
        "improvement": float((gain > 0).mean()),
    }


INTERVALS: dict[str, Callable[[Measured], tuple[Floats, Floats]]] = {
    "M-Recall": lambda some: mean_interval(some.best),
    "its difference": lambda some: mean_interval(some.gain),
    "epochs to target": lambda some: median_interval(np.minimum(some.epochs_hit, some.horizon), some.epochs_hit),
    "Difference": lambda some: median_interval(some.difference_at_least, some.difference),
    "improvement": lambda some: improvement_interval(some.gain),
    BOOTSTRAP: lambda some: _bootstrap(some.difference_at_least, some.difference),
}


def coverage(
    world: World, *, studies: int, seed: int = 0, quantities: tuple[str, ...] = (*QUANTITIES, BOOTSTRAP)
) -> dict[str, list[float]]:
    """Share of studies whose interval holds the truth, for 1 to 10 seeds; NaN where none is given."""
    rng = np.random.default_rng(seed)
    true = truths(world, rng)
    true[BOOTSTRAP] = true["Difference"]
    held: dict[str, list[list[Floats]]] = {name: [[] for _ in range(SEEDS)] for name in quantities}
    for some in _chunks(world, studies, rng):
        for name in quantities:
            interval = INTERVALS[name]
            for seeds in range(1, SEEDS + 1):
                low, high = interval(some.first(seeds))
                inside = np.where(np.isnan(low), np.nan, (low <= true[name]) & (true[name] <= high))
                held[name][seeds - 1].append(inside)
    return {name: [float(np.concatenate(parts).mean()) for parts in of] for name, of in held.items()}


def _chunks(world: World, studies: int, rng: np.random.Generator) -> Iterator[Measured]:
    for start in range(0, studies, CHUNK):
        yield measured(world, (min(CHUNK, studies - start), SEEDS), rng)


def _bootstrap(lower: Floats, upper: Floats, resamples: int = 200) -> tuple[Floats, Floats]:
    """Percentiles of the median of resampled seeds, as boards had them until decision 0046."""
    seeds = lower.shape[-1]
    draws = np.random.default_rng(1).integers(seeds, size=(resamples, seeds))
    medians = [np.median(side[..., draws], axis=-1) for side in (lower, np.minimum(upper, 1e9))]
    low, high = (
        np.quantile(side, share, axis=-1, method=method)
        for side, share, method in zip(medians, (0.025, 0.975), ("lower", "higher"), strict=True)
    )
    return low, high


def false_calls(*, comparisons: int, studies: int, seed: int = 0) -> list[float]:
    """Shares of boards of equal losses on which one or more are called different in M-Recall, for 1 to 10 seeds."""
    world, rng = WORLDS[-1], np.random.default_rng(seed)
    boards = measured(world, (studies, comparisons, SEEDS), rng)
    rows = []
    for seeds in range(1, SEEDS + 1):
        rows.append(_any_called(_t_p(boards.first(seeds).gain)))
    return rows


def _any_called(p_values: Floats) -> float:
    """Holm calls one of a board exactly if its smallest p-value is at most alpha / comparisons."""
    return float((p_values.min(axis=1) <= 0.05 / p_values.shape[1]).mean())


def _t_p(gain: Floats) -> Floats:
    seeds = gain.shape[-1]
    if seeds < 2:
        return np.ones(gain.shape[:-1])
    statistic = np.abs(gain.mean(axis=-1)) * np.sqrt(seeds) / gain.std(axis=-1, ddof=1)
    values: Floats = 2 * special.stdtr(seeds - 1, -statistic)
    return values


CUTS = (-0.4, 0.4, 0.75)
"""A query is hit at 1, 5 and 10 if its latent number, standard normal, lies below: 34, 66 and 77 %."""
_CAPTIONS = 2
_OF_UNIT = 0.25
"""Share of the variance of a latent number that a unit adds to every query on its own; of contributions of images it is
about 23 %, as in a study of Flickr8k."""
_OF_LOSS = 0.65
"""Share of the variance of latent numbers, of the share that it makes of the variance of contributions."""
_HEIGHT = 0.01
"""Standard deviation of the height of a unit, in that of latent numbers: a third of a point of M-Recall."""


def image_coverage(
    *, share: float, images: int, units: int, studies: int, paired: bool = False, seed: int = 0
) -> dict[str, float]:
    """Share of studies of two equal losses whose interval of their difference has 0, over units and over images too.

    share: of the variance of contributions of images that belongs to the loss and the image, the same for all units of
    the loss. The rest belongs to the image, to the query, and to unit and query. units: of each loss. paired: the
    difference of pairs of units; else Welch's.
    """
    rng, inside = np.random.default_rng(seed), {"over units": 0, "and images": 0}
    for start in range(0, studies, _STUDIES):
        ours, theirs = _two_losses(rng, (min(_STUDIES, studies - start), units, images), share)
        if paired:
            found = {"over units": mean_interval((ours - theirs).mean(axis=-1))}
            found["and images"] = interval_with_images([ours - theirs])
        else:
            found = {"over units": _welch_interval(ours.mean(axis=-1), theirs.mean(axis=-1))}
            found["and images"] = interval_with_images([ours, -theirs])
        for name, (low, high) in found.items():
            inside[name] += int(((low <= 0) & (high >= 0)).sum())
    return {name: count / studies for name, count in inside.items()}


_STUDIES = 50


def _two_losses(rng: np.random.Generator, shape: tuple[int, int, int], share: float) -> list[Floats]:
    """Contributions of every image to the M-Recall of every unit, (studies, units, images) each."""
    studies, units, images = shape
    queries = 1 + _CAPTIONS

    def normal(*sizes: int) -> npt.NDArray[np.float32]:
        return rng.standard_normal((studies, *sizes), dtype=np.float32)

    of_loss = _OF_LOSS * share
    rest = np.float32(np.sqrt((1 - of_loss - _OF_UNIT) / 2))
    of_image = rest * (normal(1, images, 1) + normal(1, images, queries))
    return [
        contributions_of(
            of_image + np.float32(np.sqrt(of_loss)) * normal(1, images, 1)
            + np.float32(np.sqrt(_OF_UNIT)) * normal(units, images, queries) + np.float32(_HEIGHT) * normal(units, 1, 1)
        )
        for _ in range(2)
    ]


def contributions_of(latent: npt.NDArray[np.float32]) -> Floats:
    """Contributions to M-Recall, per cent. latent: (..., queries), the image first, then its captions."""
    hits = np.mean([latent < cut for cut in CUTS], axis=0)
    total: Floats = 50 * (hits[..., 0] + hits[..., 1:].mean(axis=-1))
    return total


def _welch_interval(ours: Floats, theirs: Floats) -> tuple[Floats, Floats]:
    """Of many studies at once, equally many units each."""
    units, center = ours.shape[-1], ours.mean(axis=-1) - theirs.mean(axis=-1)
    one, other = (side.var(axis=-1, ddof=1) / units for side in (ours, theirs))
    freedom = (units - 1) * (one + other) ** 2 / (one**2 + other**2)
    half = special.stdtrit(freedom, (1 + LEVEL) / 2) * np.sqrt(one + other)
    return center - half, center + half


def print_images(studies: int) -> None:
    sizes = [(images, units) for images in (500, 1000) for units in (3, 5, 10)]
    print("\n| compared | share | interval | " + " | ".join(f"{units} x {images}" for images, units in sizes) + " |")
    for paired in (False, True):
        for share in (0.0, 0.05, 0.1):
            found = [
                image_coverage(share=share, images=images, units=units, studies=studies, paired=paired)
                for images, units in sizes
            ]
            for name in found[0]:
                cells = " | ".join(f"{100 * each[name]:.1f}" for each in found)
                print(f"| {'pairs' if paired else 'searches'} | {100 * share:.0f} % | {name} | {cells} |")


def main(studies: int) -> None:
    heads = " | ".join(str(seeds) for seeds in range(1, SEEDS + 1))
    print(f"| interval of | world | {heads} |\n| --- | --- |{' ---: |' * SEEDS}")
    found = {world.name: coverage(world, studies=studies) for world in WORLDS}
    for name in INTERVALS:
        for world, of in found.items():
            cells = " | ".join("–" if np.isnan(share) else f"{100 * share:.1f}" for share in of[name])
            print(f"| {name} | {world} | {cells} |")
    print(f"\nBoards of 3 comparisons without any difference, one called, per cent:\n| question | {heads} |")
    called = false_calls(comparisons=3, studies=studies)
    print(f"| higher or lower | {' | '.join(f'{100 * share:.1f}' for share in called)} |")
    print_images(studies // 2)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4000)
