"""Hyperparameters of this loss: default, allowed values, range searched by default, formula, source."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from vsetune.config.component_specs import MemorySpec, warmup_epochs
from vsetune.config.spec.base import Range, tunable


class TopFSpec(MemorySpec):
    """Triplets over the hardest fraction f of positives and negatives, f decaying (MSE**, Eq. 1-4)."""

    equation: ClassVar[str] = (
        "per anchor: mean of [neg + m - pos]+ over its ceil(f n_p) lowest positives x ceil(f n_n) highest negatives; "
        "mean over anchors, divided by m; mean of the directions"
    )
    source: ClassVar[str] = "Huteau et al. 2023 (MSE**), Eq. 1-4"
    several_positives: ClassVar[bool] = True

    name: Literal["top_f"] = "top_f"
    margin: float = tunable(
        0.2, Range(low=0.05, high=0.4), gt=0,
        description="m, in units of similarity; the loss is divided by it", paper="MSE**: 0.2",
    )
    decay: Literal["hyperbolic", "linear", "cosine"] = Field("hyperbolic", description="schedule of f from 1 to 0")
    decay_steps: int = tunable(
        10_000, Range(low=200, high=20_000, log=True, integer=True), ge=1, le=10**9,
        description="training steps until f reaches 0", paper="MSE**: 10,000",
    )
    sharpness: float = tunable(
        16.0, Range(low=4, high=64, log=True), ge=0, when={"decay": "hyperbolic"},
        description="k of the hyperbolic decay (1 - s) / (1 + k s)", paper="MSE**: 16",
    )
    min_fraction: float = Field(0.0, ge=0, le=1, description="f never falls below this")
    warmup_epochs: int = warmup_epochs()
