"""Hyperparameters of this loss: default, allowed values, range searched by default, formula, source."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from vsetune.config.component_specs import LossSpec
from vsetune.config.spec.base import ALL_SCORES, Kind, Range, Score, tunable
from vsetune.losses.parts.spec_fields import SameImage


class PcmePpSpec(LossSpec):
    """Matching loss of a closed-form probabilistic distance, with pseudo-positives (PCME++).

    Plain embeddings count as distributions without variance.
    """

    equation: ClassVar[str] = (
        "2 mean_ij H(m_ij, b - a d_ij)  +  alpha (mean_ij H(m^v_ij, .) + mean_ij H(m^t_ij, .))  +  w_kl (KL of images "
        "+ KL of captions),  d = |mu_v - mu_t|^2 + sum(var_v + var_t),  H: logistic cross-entropy,  m^v, m^t: m with "
        "the pseudo-positives of images, of captions"
    )
    source: ClassVar[str] = "Chun 2024 (PCME++, Improved Probabilistic Image-Text Representations), Eq. 1 to 4"
    kinds: ClassVar[frozenset[Kind]] = frozenset({"embedding", "probabilistic"})
    scores: ClassVar[frozenset[Score]] = ALL_SCORES - {"order"}

    name: Literal["pcme_pp"] = "pcme_pp"
    scale: float = tunable(5.0, Range(low=1, high=30, log=True), gt=0, description="start of a", paper="PCME++: 5")
    shift: float = tunable(5.0, Range(low=1, high=30, log=True), description="start of b", paper="PCME++: 5")
    pseudo_weight: float = tunable(
        0.1, Range(low=0.0, high=1.0), ge=0, description="alpha, weight of pseudo-positives", paper="PCME++: 0.1",
    )
    kl_weight: float = tunable(
        1e-4, Range(low=1e-5, high=1e-2, log=True), ge=0,
        description="w_kl; no effect on points", paper="PCME++: 1e-4",
    )
    variant: SameImage = Field(
        "decided",
        description="`decided` ignores other captions of the same image; `diagonal` (published) counts them as "
        "mismatches",
    )
