"""Hyperparameters of this loss: default, allowed values, range searched by default, formula, source."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from vsetune.config.spec.base import Range, tunable
from vsetune.losses.parts.spec_fields import DistanceSpec


class MarginBasedSpec(DistanceSpec):
    """Margin-based loss with a learned boundary, negatives drawn by distance (Wu et al. 2017); our adaptation."""

    equation: ClassVar[str] = (
        "sum over pairs of [a + y_ij (D_ij - beta)]+ / number of non-zero terms,  y = +1 matched, -1 not;  + nu beta"
    )
    source: ClassVar[str] = "Wu et al. 2017 (distance-weighted sampling); in Malali and Keller, Table 11"

    name: Literal["margin_based"] = "margin_based"
    margin: float = tunable(
        0.2, Range(low=0.05, high=0.4), gt=0, description="a, in units of distance", paper="Wu et al.: 0.2",
    )
    boundary: float = tunable(
        1.2, Range(low=0.6, high=1.4), gt=0, description="start of beta, in units of distance", paper="Wu et al.: 1.2",
    )
    boundary_learning_rate: float = tunable(
        0.1, Range(low=1e-3, high=0.3, log=True), ge=0,
        description="plain SGD rate of beta; 0 keeps it fixed", paper="Wu et al., released code: 0.1",
    )
    boundary_penalty: float = Field(0.0, ge=0, description="nu, weight of beta in the loss")
    negatives: Literal["distance_weighted", "all"] = Field(
        "distance_weighted", description="one negative per query sampled with inverse density of its distance, or all",
    )
    sampling_cutoff: float = Field(
        0.5, gt=0, lt=2, description="distances below count as this when drawing (released code)",
    )
    sampling_limit: float = Field(
        1.4, gt=0, lt=2,
        description="negatives farther than this are not sampled, unless a query has no others (released code)",
    )
