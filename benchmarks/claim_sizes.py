"""How often a board would claim a difference between losses that are equal, by the unit that a test takes.

    python benchmarks/claim_sizes.py [--studies 4000] [--losses 4]

Made-up boards of one baseline and some other losses, all equal, in nine worlds; every comparison is tested and
corrected after Holm. A false claim is any "higher", "lower", "faster" or "slower" on the board. First table: tuned
losses, by the means of repeated searches, and beside it by the seeds of a single search, which takes its pick as given.
Second: losses at equal settings, seed by seed. Third: the differences that are found with 80 % probability, and the
trainings they cost. All in one run; the last lines compare the two units.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

from vsetune.board.comparing import FOR_LONG_TAILS
from vsetune.metrics.repeated_searches import Effect, Spread, detectable, log_ratio, paired_log_ratio, welch
from vsetune.metrics.seed_statistics import Epochs, holm, paired_t

Floats = NDArray[np.float64]
SEARCH, SEED = 0.6, 0.5
"""Standard deviations in points of M-Recall: between searches of 8 configurations, and between seeds (issue of the
audit: .6 to .85 for searches of 8, .17 to .22 for 24; recorded seeds .14 to 1.39)."""
FULL = 12.0
"""Epochs of a training; a seed that has not reached the target by then is censored."""
ALPHA = 0.05


def normal(chance: np.random.Generator, repeats: int, seeds: int, search: float = SEARCH) -> Floats:
    """Gains of the seeds of one loss over its truth: (repeats, seeds). search: deviation between searches, points."""
    return chance.normal(0, search, (repeats, 1)) + chance.normal(0, SEED, (repeats, seeds))


def basins(chance: np.random.Generator, repeats: int, seeds: int, search: float = SEARCH) -> Floats:
    """Three searches in ten miss the better basin."""
    missed = (chance.random((repeats, 1)) < 0.3) & (search > 0)
    return -2.5 * missed + chance.normal(0, search / 3, (repeats, 1)) + chance.normal(0, SEED, (repeats, seeds))


def correlated(chance: np.random.Generator, repeats: int, seeds: int, search: float = SEARCH) -> Floats:
    """Seeds of one search share .3 of their variance."""
    shared = chance.normal(0, SEED * 0.3**0.5, (repeats, 1)) if search else 0.0
    own = chance.normal(0, SEED * (0.7 if search else 1.0) ** 0.5, (repeats, seeds))
    return chance.normal(0, search, (repeats, 1)) + shared + own


def lognormal(chance: np.random.Generator, repeats: int, seeds: int, search: float = SEARCH) -> Floats:
    """Some seeds fall far behind; the mean is that of `normal`."""
    fall = chance.lognormal(0, 1, (repeats, seeds)) - np.exp(0.5)
    return chance.normal(0, search, (repeats, 1)) - 0.5 * fall


def collapsing(chance: np.random.Generator, repeats: int, seeds: int, search: float = SEARCH) -> Floats:
    """One seed in ten collapses."""
    return normal(chance, repeats, seeds, search) - 30 * (chance.random((repeats, seeds)) < 0.1)


def made_up_for(chance: np.random.Generator, repeats: int, seeds: int, search: float = SEARCH) -> Floats:
    """The same, and the others are so much higher that the mean is that of `normal`."""
    return collapsing(chance, repeats, seeds, search) + 3


def ties(chance: np.random.Generator, repeats: int, seeds: int, search: float = SEARCH) -> Floats:
    """M-Recall of a small split, in whole points."""
    return np.round(normal(chance, repeats, seeds, search))


WORLDS: Mapping[str, tuple[Callable[..., Floats], Callable[..., Floats]]] = {
    "normal": (normal, normal),
    "two basins": (basins, basins),
    "correlated seeds": (correlated, correlated),
    "lognormal": (lognormal, lognormal),
    "only losses lognormal": (normal, lognormal),
    "all collapse": (collapsing, collapsing),
    "only losses collapse": (normal, collapsing),
    "ties": (ties, ties),
}
"""By name: the gains of the baseline, and of the other losses."""
UNSEEN = {"only losses collapse, equal means": (normal, made_up_for)}
"""No test of few seeds can hold here: nine runs in ten are higher, and the tenth may not have been seen."""


def epochs_of(gains: Floats) -> list[list[Epochs]]:
    """Epochs to a fixed target of seeds with these gains: a point is 12 % of the pace, and some seeds are censored."""
    needed = 8.0 * np.exp(-0.12 * gains)
    return [[Epochs(min(float(each), FULL), bool(each > FULL)) for each in repeat] for repeat in needed]


def claims(effects: list[float]) -> bool:
    return min(holm(effects)) <= ALPHA


def over_repeats(baseline: Floats, others: list[Floats]) -> tuple[bool, bool]:
    """Whether the board makes a claim of M-Recall, and of epochs, by repeats."""
    heights: list[Effect] = [welch(each.mean(1), baseline.mean(1)) for each in others]
    paces = [log_ratio(epochs_of(each), epochs_of(baseline)) for each in others]
    return claims([each.p for each in heights]), claims([each.p for each in paces])


def over_seeds(baseline: Floats, others: list[Floats], factor: float = 1.0) -> tuple[bool, bool]:
    """The same by the seeds of one search, paired by seed. factor: on every p-value."""
    heights = [factor * paired_t(each[0] - baseline[0]) for each in others]
    (theirs,) = epochs_of(baseline)
    paces = [factor * paired_log_ratio(epochs_of(each)[0], theirs).p for each in others]
    return claims(heights), claims(paces)


def over_equal_settings(baseline: Floats, others: list[Floats]) -> tuple[bool, bool]:
    """The same as boards compare losses that were not searched."""
    return over_seeds(baseline, others, FOR_LONG_TAILS)


@dataclass(frozen=True)
class Design:
    """How the losses of a board are observed. search: deviation between searches; 0: nothing is searched."""

    name: str
    repeats: int
    seeds: int
    test: Callable[[Floats, list[Floats]], tuple[bool, bool]]
    search: float = SEARCH


REPEATED = [Design(f"{r} searches x {s}", r, s, over_repeats) for r, s in ((3, 2), (4, 2), (5, 2), (10, 1))]
ONCE = [Design(f"1 search, {seeds} seeds", 1, seeds, over_seeds) for seeds in (6, 10)]
EQUAL = [Design(f"{seeds} seeds", 1, seeds, over_equal_settings, 0.0) for seeds in (3, 4, 5, 6, 8, 10)]


def sizes_of(world: str, design: Design, *, studies: int, losses: int) -> tuple[float, float]:
    """Share of boards with a false claim of M-Recall, and of epochs, per cent."""
    of_baseline, of_loss = (WORLDS | UNSEEN)[world]
    chance, shape = np.random.default_rng(0), (design.repeats, design.seeds, design.search)
    found = [
        design.test(of_baseline(chance, *shape), [of_loss(chance, *shape) for _ in range(losses - 1)])
        for _ in range(studies)
    ]
    heights, paces = 100 * np.mean(found, axis=0)
    return float(heights), float(paces)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=4000)
    parser.add_argument("--losses", type=int, default=4)
    asked = parser.parse_args()
    console = Console(width=150)
    tuned: dict[str, float] = {}
    for title, designs in (("tuned losses", [*REPEATED, *ONCE]), ("losses at equal settings", EQUAL)):
        table = Table(
            "world", *(design.name for design in designs), title_justify="left",
            title=f"{title}: boards with a false claim of M-Recall and of epochs, %; {asked.losses} losses, "
            f"{asked.studies} boards",
        )
        for world in track(WORLDS | UNSEEN, "simulating", console=console, transient=True):
            found = [sizes_of(world, design, studies=asked.studies, losses=asked.losses) for design in designs]
            table.add_row(world, *(f"{height:.1f}, {pace:.1f}" for height, pace in found))
            if world in WORLDS and designs is not EQUAL:
                for design, (height, _) in zip(designs, found, strict=True):
                    tuned[design.name] = tuned.get(design.name, 0.0) + height / len(WORLDS)
        console.print(table)
    console.print(power_table())
    repeated, once = (np.mean([tuned[design.name] for design in designs]) for designs in (REPEATED, ONCE))
    console.print(
        f"mean false claims of M-Recall: one search {once:.1f} %, repeats {repeated:.1f} %: ratio {once / repeated:.0f}"
    )


def power_table() -> Table:
    table = Table("searches", "seeds each", "points found in 80 %", "trainings of a loss", title_justify="left",
                  title=f"searches of 16 trainings, deviations {SEARCH} (search) and {SEED} (seed) points")
    for repeats in (3, 4, 5, 8, 10):
        for seeds in (1, 2, 4):
            found = detectable(Spread(SEARCH, SEED), repeats=repeats, seeds=seeds)
            table.add_row(str(repeats), str(seeds), f"{found:.2f}", str(repeats * (16 + seeds)))
    return table


if __name__ == "__main__":
    main()
