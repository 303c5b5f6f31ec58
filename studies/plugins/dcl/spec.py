"""What can be set of the decoupled contrastive loss."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from vsetune.config.component_specs import LossSpec
from vsetune.config.spec.base import Range, tunable
from vsetune.losses.parts.spec_fields import SameImage


class DclSpec(LossSpec):
    """Softmax over the batch without the pair itself in the denominator (DCL), with a learned scale."""

    equation: ClassVar[str] = (
        "1/2 (mean_i [lse_{j != i} e^u S_ij - e^u S_ii] + mean_j [lse_{i != j} e^u S_ij - e^u S_jj]);  u learned"
    )
    source: ClassVar[str] = "Yeh et al. 2022 (Decoupled Contrastive Learning), Eq. 6"

    name: Literal["dcl"] = "dcl"
    scale: float = tunable(
        10.0, Range(low=2, high=50, log=True), gt=0, le=1e4,
        description="start of e^u, multiplies similarities", paper="DCL: 1 / 0.1",
    )
    learned: bool = Field(True, description="train the scale with the network; false keeps it where it starts")
    variant: SameImage = Field(
        "decided",
        description="`decided` ignores other captions of the same image in the denominator; `diagonal` keeps them, as "
        "the paper does",
    )
