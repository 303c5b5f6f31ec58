"""How often a board would claim a difference between tuned losses that are equal, by the unit that a test takes.

    python benchmarks/claim_sizes.py [--studies 4000] [--losses 4]

Made-up boards of one baseline and some other losses, all equal, in seven worlds; every comparison is tested and
corrected after Holm. A false claim is any "higher", "lower", "faster" or "slower" on the board. Beside it the tests
over seeds of a single search, which treat the pick as given. Second table: the differences that are found with 80 %
probability, and the epochs they cost. All in one run; the last lines compare the two units.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

from vsetune.metrics.repeated_searches import Effect, Spread, detectable, log_ratio, welch
from vsetune.metrics.seed_statistics import Epochs, holm, paired_t, sign_test

Floats = NDArray[np.float64]
SEARCH, SEED = 0.6, 0.5
"""Standard deviations in points of M-Recall: between searches of 8 configurations, and between seeds (issue of the
audit: .6 to .85 for searches of 8, .17 to .22 for 24; recorded seeds .14 to 1.39)."""
FULL = 12.0
"""Epochs of a training; a seed that has not reached the target by then is censored."""
ALPHA = 0.05


def normal(chance: np.random.Generator, repeats: int, seeds: int) -> Floats:
    """Gains of the seeds of one loss over its truth: (repeats, seeds)."""
    return chance.normal(0, SEARCH, (repeats, 1)) + chance.normal(0, SEED, (repeats, seeds))


def basins(chance: np.random.Generator, repeats: int, seeds: int) -> Floats:
    """Three searches in ten miss the better basin."""
    found = -2.5 * (chance.random((repeats, 1)) < 0.3) + chance.normal(0, 0.2, (repeats, 1))
    return found + chance.normal(0, SEED, (repeats, seeds))


def correlated(chance: np.random.Generator, repeats: int, seeds: int) -> Floats:
    """Seeds of one pick share .3 of their variance."""
    shared = chance.normal(0, SEED * 0.3**0.5, (repeats, 1)) + chance.normal(0, SEED * 0.7**0.5, (repeats, seeds))
    return chance.normal(0, SEARCH, (repeats, 1)) + shared


def lognormal(chance: np.random.Generator, repeats: int, seeds: int) -> Floats:
    """Some seeds fall far behind."""
    return chance.normal(0, SEARCH, (repeats, 1)) - 0.5 * chance.lognormal(0, 1, (repeats, seeds))


def collapsing(chance: np.random.Generator, repeats: int, seeds: int) -> Floats:
    """One seed in ten collapses."""
    return normal(chance, repeats, seeds) - 30 * (chance.random((repeats, seeds)) < 0.1)


def ties(chance: np.random.Generator, repeats: int, seeds: int) -> Floats:
    """M-Recall of a small split, in whole points."""
    return np.round(normal(chance, repeats, seeds))


WORLDS: Mapping[str, tuple[Callable[..., Floats], Callable[..., Floats]]] = {
    "normal": (normal, normal),
    "two basins": (basins, basins),
    "correlated seeds": (correlated, correlated),
    "lognormal": (lognormal, lognormal),
    "all collapse": (collapsing, collapsing),
    "only losses collapse": (normal, collapsing),
    "ties": (ties, ties),
}
"""By name: the gains of the baseline, and of the other losses."""


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


def over_seeds(baseline: Floats, others: list[Floats]) -> tuple[bool, bool]:
    """The same with as many seeds of one search, paired by seed."""
    def one(gains: Floats) -> Floats:
        return gains[0]

    theirs = one(baseline)
    heights = [paired_t(one(each) - theirs) for each in others]
    signs = [np.sign(theirs - one(each)) for each in others]
    return claims(heights), claims([sign_test(int((sign > 0).sum()), int((sign < 0).sum())) for sign in signs])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=4000)
    parser.add_argument("--losses", type=int, default=4)
    asked = parser.parse_args()
    console = Console(width=140)
    designs = [(3, 2), (5, 2), (10, 1)]
    table = Table(
        "world", *(f"{repeats} x {seeds}: M-Recall, epochs" for repeats, seeds in designs),
        *(f"one search, {repeats * seeds} seeds: M-Recall, epochs" for repeats, seeds in designs),
        title=f"boards with a false claim, %; {asked.losses} losses, {asked.studies} boards", title_justify="left",
    )
    sizes: dict[str, list[float]] = {"repeats": [], "seeds": []}
    for name, (of_baseline, of_loss) in track(WORLDS.items(), "simulating", console=console, transient=True):
        chance, row = np.random.default_rng(0), [name]
        for unit, test in (("repeats", over_repeats), ("seeds", over_seeds)):
            for repeats, seeds in designs:
                shape = (repeats, seeds) if unit == "repeats" else (1, repeats * seeds)
                found = np.mean([
                    test(of_baseline(chance, *shape), [of_loss(chance, *shape) for _ in range(asked.losses - 1)])
                    for _ in range(asked.studies)
                ], axis=0)
                row.append(f"{100 * found[0]:.1f}, {100 * found[1]:.1f}")
                sizes[unit].append(float(found[0]))
        table.add_row(*row)
    console.print(table)
    console.print(power_table())
    console.print(
        f"mean false claims of M-Recall: one search {100 * np.mean(sizes['seeds']):.1f} %, repeats "
        f"{100 * np.mean(sizes['repeats']):.1f} %: ratio {np.mean(sizes['seeds']) / np.mean(sizes['repeats']):.0f}"
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
