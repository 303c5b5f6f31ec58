"""Hyperparameters of every loss: default, allowed values, range searched by default, formula, source.

The loss itself stands in `vsetune.losses`.
"""

from __future__ import annotations

from vsetune.config.losses.base import LossSpec, MemorySpec
from vsetune.config.losses.centers import SemanticCenterSpec
from vsetune.config.losses.composition import AnyLoss, SumSpec, WeightedLoss
from vsetune.config.losses.hinges import HingeSpec, IrtmSpec, LmhSpec, LshSpec, LuwmSpec, OrderSpec, SameImage
from vsetune.config.losses.semantic import AdditiveMarginSpec, LsehSpec, ManyToManySpec
from vsetune.config.losses.several import PcmeSpec, PvseSpec
from vsetune.config.losses.softmax import InfoNceSpec, NtXentSpec, SoftmaxSpec
from vsetune.config.losses.triplets import (
    AdaptiveMarginSpec,
    ContrastiveSpec,
    MarginBasedSpec,
    TopFSpec,
    TripletMarginFields,
)

LOSSES: dict[str, type[LossSpec]] = {
    spec.model_fields["name"].default: spec
    for spec in (
        LshSpec, LmhSpec, LsehSpec, LuwmSpec, TopFSpec, AdaptiveMarginSpec, SemanticCenterSpec, ManyToManySpec,
        InfoNceSpec, NtXentSpec, PvseSpec, PcmeSpec, OrderSpec, IrtmSpec, ContrastiveSpec, MarginBasedSpec,
        AdditiveMarginSpec,
    )
}
"""Every loss by the name that study files use. A weighted sum of them is written as a list there."""

__all__ = [
    "LOSSES", "AdaptiveMarginSpec", "AdditiveMarginSpec", "AnyLoss", "ContrastiveSpec", "HingeSpec", "InfoNceSpec",
    "IrtmSpec", "LmhSpec", "LossSpec", "LsehSpec", "LshSpec", "LuwmSpec", "ManyToManySpec", "MarginBasedSpec",
    "MemorySpec", "NtXentSpec", "OrderSpec", "PcmeSpec", "PvseSpec", "SameImage", "SemanticCenterSpec", "SoftmaxSpec",
    "SumSpec", "TopFSpec", "TripletMarginFields", "WeightedLoss",
]
