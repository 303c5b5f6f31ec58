"""Hyperparameters of this loss: default, allowed values, range searched by default, formula, source."""

from __future__ import annotations

from typing import ClassVar, Literal

from vsetune.losses.parts.spec_fields import HingeSpec


class LshSpec(HingeSpec):
    """Sum of hinges (LSH; VSE0)."""

    equation: ClassVar[str] = (
        "sum_i sum_{j != i} [m + S_ij - S_ii]+  +  sum_j sum_{i != j} [m + S_ij - S_jj]+"
    )
    source: ClassVar[str] = "Kiros et al. 2014; Faghri et al. 2018 (VSE++), Eq. 5"

    name: Literal["lsh"] = "lsh"
