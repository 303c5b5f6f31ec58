"""Nights and a nightly file for tests: small, and noisy as real ones are."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np

from vsetune.nightly.night import CellNight, Night
from vsetune.nightly.nightly_spec import NightlySpec

LOSSES = (0.5, 0.25, 0.125)

PLAIN: dict[str, Any] = {
    "nightly": "tiny", "data": {"path": "data/scenes", "scenes": {"train": 48, "validation": 16, "test": 16}},
    "networks": [{"name": "vsepp", "fixed": {"embedding_size": 16, "word_size": 8}}], "losses": [{"name": "lmh"}],
    "training": {"epochs": 2, "batch_size": 40, "validate_every_steps": 3, "learning_rate": 1e-3},
}
USUAL = {
    "best_m_recall": 40.0, "epochs_to_target": 1.0, "m_recall_area": 30.0, "epoch_time": 100.0,
    "pair_rate": 20.0, "peak_memory": 6e8, "start_time": 3.0, "data_wait": 0.1, "step_time": 1.5,
    "step_wall_time": 1.6, "epoch_wall_time": 110.0,
}


def tiny_spec(**changes: Any) -> NightlySpec:
    """One cell, two epochs of eight steps."""
    return NightlySpec.model_validate(copy.deepcopy(PLAIN) | changes)


def night_of_day(
    day: int, *, revision: str = "abc", cells: dict[str, CellNight] | None = None, **values: float
) -> Night:
    """The complete night of a day in January 2026. values: measures that are not as usual (give or take 1 %)."""
    noise = np.random.default_rng(day).normal(0, 0.01, len(USUAL))
    usual = {name: value * (1 + spread) for (name, value), spread in zip(USUAL.items(), noise, strict=True)}
    date = f"2026-01-{day:02}"
    night = Night(
        date, f"{date}T01:00:00+00:00", f"{date}T01:04:00+00:00", "complete", revision, {"threads": "1"},
        {"vsepp.lmh": CellNight(usual | values, LOSSES)},
    )
    return night if cells is None else replace(night, cells=cells)
