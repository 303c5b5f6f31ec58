"""Rows with intervals over images: which seeds count, of tuned losses and of seeds that diverged, and other weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from refusals import fits

from vsetune.board.building import build
from vsetune.board.image_rows import needs_hits, with_images
from vsetune.board.rows import Row
from vsetune.metrics.image_intervals import ImageHits, interval_with_images
from vsetune.records.state import Attempt

IMAGES = 30


def made(rng: np.random.Generator) -> ImageHits:
    captions = np.full(IMAGES, 5.0)
    return ImageHits(rng.integers(0, 4, IMAGES) / 3, rng.uniform(0, 5, IMAGES), captions)


class Seeds:
    """Attempts whose best M-Recall is that of made-up hits."""

    def __init__(self, attempt: Callable[..., Attempt]) -> None:
        self.attempt, self.rng = attempt, np.random.default_rng(0)
        self.attempts: list[Attempt] = []
        self.hits: dict[str, ImageHits] = {}

    def add(self, loss: str, seed: int, *, diverged: bool = False, **about: object) -> None:
        found = made(self.rng)
        recalls = [10.0, found.m_recall, found.m_recall - 0.5]
        ended = {"status": "failed", "error": "numeric: loss is nan"} if diverged else {}
        new = self.attempt(loss, recalls, seed=seed, **{"phase": "confirm", **ended, **about})
        self.attempts.append(new)
        if not diverged:
            self.hits[new.start.trial] = found

    def rows(self) -> tuple[Row, ...]:
        return build(self.attempts, baseline="lmh").rows


@pytest.fixture
def seeds(attempt) -> Seeds:
    return Seeds(attempt)


def units(rows: Row, seeds: Seeds) -> np.ndarray:
    """(units, images) as the board averages them; without a hit where a seed has diverged."""
    nothing = np.zeros(IMAGES)
    return np.array([
        np.mean([seeds.hits[s.trial].contributions if s.trial in seeds.hits else nothing for s in unit], axis=0)
        for unit in rows.units
    ])


def test_a_diverged_seed_misses_every_image(seeds: Seeds) -> None:
    for loss in ("lmh", "lseh"):
        for seed in (1, 2, 3):
            seeds.add(loss, seed, diverged=(loss, seed) == ("lseh", 2))
    rows = seeds.rows()
    assert needs_hits(rows) == list(rows)
    baseline, loss = with_images(rows, seeds.hits)
    ours, theirs = units(loss.row, seeds), units(baseline.row, seeds)
    assert ours.mean() == pytest.approx(loss.row.best_m_recall)
    assert not loss.problems
    assert len(loss.scored) == 2
    level = loss.row.comparison.height_level
    assert level == pytest.approx(1 - 0.05 / 2.5)
    assert loss.difference_bounds == pytest.approx(interval_with_images([ours - theirs], level))
    assert loss.m_recall_bounds == pytest.approx(np.clip(interval_with_images([ours]), 0, 100))


def test_searches_of_tuned_losses_are_units_and_independent(seeds: Seeds) -> None:
    for repeat in (1, 2, 3):
        for loss in ("lmh", "lseh"):
            for configuration in (0, 1):
                seeds.add(loss, 0, configuration=configuration, repeat=repeat, phase="search")
            winner = max(seeds.attempts[-2:], key=lambda each: max(recall for _, recall in each.curve))
            chosen = int(winner.start.trial.split("-c")[1][0])
            for seed in (10 * repeat, 10 * repeat + 1):
                seeds.add(loss, seed, configuration=chosen, repeat=repeat)
    baseline, loss = with_images(seeds.rows(), seeds.hits)
    assert loss.row.has_searches
    assert len(loss.scored) == 6
    ours, theirs = units(loss.row, seeds), units(baseline.row, seeds)
    assert len(ours) == 3
    assert ours.mean() == pytest.approx(loss.row.best_m_recall)
    assert loss.difference_bounds == pytest.approx(interval_with_images([ours, -theirs]))


def test_a_loss_without_an_interval_over_seeds_needs_no_hits(seeds: Seeds) -> None:
    for loss, number in (("lmh", 2), ("lseh", 2), ("lsh", 1)):
        for seed in range(number):
            seeds.add(loss, seed)
    assert {row.loss for row in needs_hits(seeds.rows())} == {"lmh", "lseh"}
    single = next(each for each in with_images(seeds.rows(), seeds.hits) if each.row.loss == "lsh")
    assert (single.m_recall_bounds, single.difference_bounds) == (None, None)


@pytest.mark.parametrize(("more", "message"), [
    (0.2, "VSE-B025"), (20.0, "VSE-B026"),
])
def test_weights_that_do_not_give_what_is_recorded_are_named(seeds: Seeds, more: float, message) -> None:
    for loss in ("lmh", "lseh"):
        for seed in (1, 2):
            seeds.add(loss, seed)
    trial = seeds.attempts[0].start.trial
    found = seeds.hits[trial]
    seeds.hits[trial] = replace(found, of_captions=found.of_captions + more / IMAGES)  # M-Recall + more / 3
    baseline, loss = with_images(seeds.rows(), seeds.hits)
    assert [fits(problem, message, trial=trial) for problem in baseline.problems] == [True]
    is_usable = message == "VSE-B025"
    assert (baseline.m_recall_bounds is not None) == (loss.difference_bounds is not None) == is_usable
    low, high = loss.m_recall_bounds
    assert low < loss.row.best_m_recall < high
