"""Hyperparameters of this loss: default, allowed values, range searched by default, formula, source."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import model_validator

from vsetune.config.component_specs import MemorySpec, warmup_epochs
from vsetune.losses.parts.spec_fields import TripletMarginFields, refuse_random_with_memory


class AdaptiveMarginSpec(TripletMarginFields, MemorySpec):
    """Triplet hinge on distances whose two margins grow with success (Malali and Keller, Eq. 10-13)."""

    equation: ClassVar[str] = (
        "sum_n [D(x_n, y_n+) - D(x_n, y_n-) + m_x]+  +  sum_n [D(y_n, x_n+) - D(y_n, x_n-) + m_y]+;  every q steps "
        "m <- c m where the share of respected triplets exceeds r"
    )
    source: ClassVar[str] = "Malali and Keller, Eq. 10-13"

    name: Literal["adaptive_margin"] = "adaptive_margin"
    warmup_epochs: int = warmup_epochs()

    @model_validator(mode="after")
    def _random_has_no_memory(self) -> AdaptiveMarginSpec:
        refuse_random_with_memory(self.negatives, self.memory_size, "hardest")
        return self
