"""Noise of quiet nights for `nightly_power.py`: recorded in a history of real nights, or imagined: white, in clusters
of slow nights, or autocorrelated."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.signal import lfilter

from vsetune.nightly.judging.noise import Floats, Integers, Streams, of_all_cells
from vsetune.nightly.judging.scores import Tolerance
from vsetune.nightly.night import BY_NAME, MEASURES, Measure

FEWEST_NIGHTS = 3
CELLS = 12
IMAGINED_NIGHTS = 20_000
IMAGINED = {
    "best_m_recall": 1.0, "epochs_to_target": 0.3, "m_recall_area": 0.8, "step_time": 0.02, "epoch_time": 0.03,
    "peak_memory": 0.01, "start_time": 0.15, "data_wait": 0.02,
}
"""Standard deviations as judged: in the unit where linear, of the logarithm where ratio."""
SLOWED = ("step_time", "step_wall_time", "epoch_time", "epoch_wall_time", "pair_rate", "start_time")
"""What a busy machine makes worse."""
TWINS = {"step_wall_time": "step_time", "epoch_wall_time": "epoch_time", "pair_rate": "epoch_wall_time"}
"""The noise of a wall time is that of the processor time beside it, and some of its own:"""
OF_TWINS = 0.01
BUSY_NIGHTS, SLOWEST = 0.01, 0.15
"""White noise: share of single nights on which the machine is busy, and by how much everything is slower at most."""
CLUSTER_BEGINS, CLUSTER_GOES_ON, CLUSTER_SLOWER = 1 / 20, 2 / 3, (0.05, 0.15)
"""Clusters: their chance to begin on a night, to go on the next one, and by how much everything is slower in one."""
Noise = Literal["white", "clusters", "ar1"]
AUTOCORRELATION = 0.6


@dataclass(frozen=True)
class QuietNights:
    """residuals: (nights, streams) as judged, around 0, NaN where there was no value; the last streams are means over
    all cells of a measure. of: (streams,), the number of the measure in `measures`; cell: its number, -1 for all.
    is_sequence: whether nights depend on those before them, so that histories are runs of successive nights."""

    measures: list[Measure]
    streams: Streams
    residuals: Floats
    of: Integers
    cell: Integers
    source: str
    is_sequence: bool = False

    def histories(self, count: int, nights: int, rng: np.random.Generator) -> Floats:
        """(count, nights, streams): whole nights sampled again, so that streams go on depending on each other."""
        if self.is_sequence:
            begins = rng.integers(0, len(self.residuals) - nights, size=(count, 1))
            rows = begins + np.arange(nights)
        else:
            rows = rng.integers(0, len(self.residuals), size=(count, nights))
        sampled: Floats = self.residuals[rows]
        return sampled


def recorded(folder: Path) -> QuietNights:
    """All nights of a folder of `Night.to_plain()` files as one line; raises SystemExit where there are too few."""
    nights = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.json"))]
    nights = sorted((one for one in nights if "cells" in one and "conditions" in one), key=lambda one: str(one["date"]))
    found = {(name, cell) for night in nights for cell, seen in night["cells"].items() for name in seen["values"]}
    keys = sorted(key for key in found if key[0] in BY_NAME)
    if len(nights) < FEWEST_NIGHTS or not keys:
        raise SystemExit(f"{folder}: got {len(nights)} nights with values, need at least {FEWEST_NIGHTS}; "
                         "name a folder that `vsetune nightly run` has filled")
    values = np.array([[_value(night, *key) for key in keys] for night in nights])
    measures = [BY_NAME[name] for name, _ in keys]
    judged = _streams(measures).judged(values)
    count = np.isfinite(judged).sum(axis=0)
    kept = count >= FEWEST_NIGHTS
    judged, count = judged[:, kept], count[kept]
    residuals = (judged - np.nanmean(judged, axis=0)) * np.sqrt(count / (count - 1))
    names = sorted({cell for _, cell in keys})
    cells = [names.index(cell) for (_, cell), keep in zip(keys, kept, strict=True) if keep]
    measures = [measure for measure, keep in zip(measures, kept, strict=True) if keep]
    return _with_all_cells(measures, np.array(cells), residuals, f"{len(nights)} nights of {folder}")


def imagined(rng: np.random.Generator, kind: Noise = "white") -> QuietNights:
    """Normal noise, half of its variance common to the cells of a measure, cells up to twice as noisy as others.

    white: nights are independent; on one in 100 the machine is busy. clusters: busy nights come in clusters. ar1: no
    busy nights; every stream has the same variance, and the autocorrelation `AUTOCORRELATION` from night to night."""
    measures = [measure for measure in MEASURES for _ in range(CELLS)]
    deviation = np.array([IMAGINED.get(measure.name, 0.0) for measure in measures])
    deviation *= rng.uniform(0.7, 1.4, size=len(measures))
    common = rng.normal(size=(IMAGINED_NIGHTS, len(MEASURES))).repeat(CELLS, axis=1)
    normal = np.sqrt(0.5) * (common + rng.normal(size=common.shape))
    if kind == "ar1":
        normal = lfilter([np.sqrt(1 - AUTOCORRELATION**2)], [1, -AUTOCORRELATION], normal, axis=0)
    busy = {"white": _single_nights, "clusters": _clusters, "ar1": lambda _: np.zeros(IMAGINED_NIGHTS)}[kind](rng)
    normal *= deviation
    for name, twin in TWINS.items():
        its, own = (np.flatnonzero([measure.name == each for measure in measures]) for each in (twin, name))
        normal[:, own] = normal[:, its] + OF_TWINS * rng.normal(size=(IMAGINED_NIGHTS, CELLS))
    is_slowed = np.array([measure.name in SLOWED for measure in measures])
    residuals = normal + busy[:, None] * is_slowed
    cells = np.tile(np.arange(CELLS), len(MEASURES))
    return replace(
        _with_all_cells(measures, cells, residuals, f"imagined noise, {kind}"), is_sequence=kind != "white"
    )


def _single_nights(rng: np.random.Generator) -> Floats:
    """(nights,): by how much everything is slower, in logarithms."""
    busy: Floats = (rng.random(IMAGINED_NIGHTS) < BUSY_NIGHTS) * rng.uniform(0, SLOWEST, size=IMAGINED_NIGHTS)
    return busy


def _clusters(rng: np.random.Generator) -> Floats:
    """As `_single_nights`, alike on the nights of a cluster."""
    busy, slower = np.zeros(IMAGINED_NIGHTS), 0.0
    for night, chance in enumerate(rng.random(IMAGINED_NIGHTS)):
        if slower == 0.0 and chance < CLUSTER_BEGINS:
            slower = rng.uniform(*CLUSTER_SLOWER)
        elif slower > 0.0 and chance >= CLUSTER_GOES_ON:
            slower = 0.0
        busy[night] = slower
    return busy


def _value(night: dict[str, Any], name: str, cell: str) -> float:
    seen = night["cells"].get(cell)
    value = seen["values"].get(name) if seen and not seen["trouble"] else None
    return float("nan") if value is None else float(value)


def _streams(measures: list[Measure]) -> Streams:
    return Streams.of(measures, [Tolerance().change_that_matters(measure) for measure in measures])


def _with_all_cells(measures: list[Measure], cells: Integers, residuals: Floats, source: str) -> QuietNights:
    """As `all_cells` does; residuals are around 0 already."""
    named = sorted({measure.name: measure for measure in measures}.values(), key=lambda one: MEASURES.index(one))
    of = np.array([named.index(measure) for measure in measures])
    together = []
    for number, measure in enumerate(named):
        own = residuals[:, np.flatnonzero(of[: len(cells)] == number)]
        if own.shape[1] < 2:
            continue
        known = np.isfinite(own).sum(axis=1)
        together.append(np.where(known >= 2, np.nansum(own, axis=1) / np.maximum(known, 1), np.nan))
        measures = [*measures, replace(measure, name=of_all_cells(measure.name))]
        of = np.append(of, number)
    cells = np.append(cells, np.full(len(together), -1))
    return QuietNights(named, _streams(measures), np.column_stack([residuals, *together]), of, cells, source)
