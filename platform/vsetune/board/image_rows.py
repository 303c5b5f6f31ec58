"""Rows of a board with intervals over its validation images too, from the hits of every image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vsetune.board.comparing import Unit, bounds, compared_units
from vsetune.board.rows import Bounds, Row
from vsetune.errors import Problem
from vsetune.metrics.image_intervals import ImageHits, interval_with_images
from vsetune.metrics.seed_statistics import Floats

_EQUAL = 1e-6
"""Per cent. One hit changes M-Recall by more."""
_ROUNDING = 0.1
"""Per cent; of few images six hits. Another device rounds scores otherwise, which moves single hits: one hit of an
image is a sixtieth of a per cent of 1,000 images."""

Hits = Mapping[str, ImageHits]
"""Of the best weights, by the name of the trial."""


@dataclass(frozen=True)
class ImageRow:
    """A row of a board with its intervals over images too.

    m_recall_bounds: 95 % interval of M-Recall over seeds or searches and images, per cent; difference_bounds: of the
    difference to the baseline, points. None where the board has none over seeds or searches, and where the weights are
    not those of the best validation. images, captions: of the validation split, as ranked; 0 where none was scored.
    scored: M-Recall of the best weights by trial, per cent; diverged seeds, which have none, are not among them. They
    count as 0 on the board, and here miss every image and caption. problems: weights that do not give what is recorded.
    """

    row: Row
    m_recall_bounds: Bounds | None
    difference_bounds: Bounds | None
    images: int
    captions: int
    scored: Mapping[str, float]
    problems: tuple[Problem, ...]

    def to_plain(self) -> dict[str, Any]:
        """Plain data; `..._image_bounds` are over seeds or searches and images, `..._bounds` those of the board."""
        row, comparison = self.row, self.row.comparison
        return {
            "dataset": row.dataset, "network": row.network, "loss": row.loss, "is_baseline": row.is_baseline,
            "unit": "search" if row.has_searches else "seed", "units": len(row.units),
            "images": self.images, "captions": self.captions, "m_recall": row.best_m_recall,
            "m_recall_bounds": row.m_recall_bounds, "m_recall_image_bounds": self.m_recall_bounds,
            "difference": None if comparison is None else comparison.m_recall,
            "difference_bounds": None if comparison is None else comparison.m_recall_bounds,
            "difference_image_bounds": self.difference_bounds, "scored": dict(self.scored),
            "problems": [f"{problem.code}: {problem}" for problem in self.problems],
        }


def needs_hits(rows: Sequence[Row]) -> list[Row]:
    """Of the rows of one network and data set those with an interval, and the baseline of a difference with one."""
    differ = [row for row in rows if row.comparison is not None and row.comparison.m_recall_bounds is not None]
    return [
        row for row in rows
        if row.m_recall_bounds is not None or row in differ or (row.is_baseline and differ)
    ]


def with_images(rows: Sequence[Row], hits: Hits) -> list[ImageRow]:
    """rows: of one network and data set. hits: of all headline seeds of `needs_hits` that have not diverged."""
    problems = {row.loss: _problems(row, hits) for row in rows}
    usable = {
        row.loss for row in rows
        if all(problem.code != "VSE-B026" for problem in problems[row.loss])
    }
    baseline = next((row for row in rows if row.is_baseline), None)
    found = []
    for row in rows:
        own = {seed.trial: hits[seed.trial] for seed in row.headline if seed.trial in hits}
        sizes = next(iter(own.values()), None)
        found.append(ImageRow(
            row, _of_m_recall(row, hits) if row.loss in usable else None,
            _of_difference(row, baseline, hits) if baseline and {row.loss, baseline.loss} <= usable else None,
            images=0 if sizes is None else len(sizes.captions),
            captions=0 if sizes is None else int(sizes.captions.sum()),
            scored={trial: each.m_recall for trial, each in own.items()}, problems=tuple(problems[row.loss]),
        ))
    return found


def _problems(row: Row, hits: Hits) -> list[Problem]:
    found = []
    for seed in row.headline:
        if seed.trial not in hits:
            continue
        got = hits[seed.trial].m_recall
        distance = abs(got - seed.best_m_recall)
        if distance > _EQUAL:
            most = max(_ROUNDING, 100 / len(hits[seed.trial].captions))
            if distance > most:
                found.append(Problem.of(
                    "VSE-B026", "{trial}: its best weights have M-Recall {got:.6f} here, {recorded:.6f} is recorded: "
                    "they are not those of its best validation, so its row has no interval over images; put that file "
                    "back, or train the trial again", trial=seed.trial, got=got, recorded=seed.best_m_recall,
                ))
            else:
                found.append(Problem.of(
                    "VSE-B025", "{trial}: its best weights have M-Recall {got:.6f} here, {recorded:.6f} is recorded: "
                    "another device rounds otherwise, and moves single hits", trial=seed.trial, got=got,
                    recorded=seed.best_m_recall,
                ))
    return found


def _of_m_recall(row: Row, hits: Hits) -> Bounds | None:
    if row.m_recall_bounds is None:
        return None
    found = bounds(interval_with_images([_contributions(row.units, hits, row.units)]))
    return None if found is None else (max(found[0], 0.0), min(found[1], 100.0))


def _of_difference(row: Row, baseline: Row, hits: Hits) -> Bounds | None:
    comparison = row.comparison
    if comparison is None or comparison.m_recall_bounds is None:
        return None
    ours, theirs = compared_units(row, baseline)
    one, other = (_contributions(units, hits, [*ours, *theirs]) for units in (ours, theirs))
    sides = [one, -other] if comparison.by_search else [one - other]
    return bounds(interval_with_images(sides, comparison.height_level))


def _contributions(units: Sequence[Unit], hits: Hits, together: Sequence[Unit]) -> Floats:
    """(units, images) means over the seeds of each unit. together: units of which one seed has not diverged."""
    images = next(hits[seed.trial] for unit in together for seed in unit if not seed.diverged)
    return np.stack([
        np.mean([hits.get(seed.trial, images.none).contributions for seed in unit], axis=0) for unit in units
    ])
