"""Hyperparameters of PCME."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from vsetune.config.component_specs import NetworkSpec, PairCost
from vsetune.config.spec.base import Kind, Score


class PcmeNetworkSpec(NetworkSpec):
    """PCME (Chun et al. 2021): a Gaussian per item; the mean is PVSE's with one head, the spread has its own layers."""

    source: ClassVar[str] = "Chun et al., CVPR 2021"
    default_parameters: ClassVar[int] = 21_301_116

    def pair_cost(self, *, regions: int, words: int) -> PairCost:
        """One dot product, of means or of sums of samples; or the distances of all pairs of samples."""
        drawn = self.samples**2 if self.similarity == "match_probability" else 1
        return PairCost(flops=2 * drawn * self.embedding_size, numbers=4 * drawn)

    @property
    def kind(self) -> Kind:
        return "probabilistic"

    name: Literal["pcme"] = "pcme"
    embedding_size: int = Field(
        1024, ge=2, le=65_536, multiple_of=2,
        description="D, size of the joint space; each direction of the GRUs has half of it",
    )
    end_state: Literal["legacy", "final"] = Field(
        "legacy",
        description="`legacy` (released): output of the caption GRUs at the last word, where the backward direction "
        "has read that word alone; `final`: last state of each direction",
    )
    similarity: Literal["matmul", "match_probability", "mean", "csd"] = Field(
        "matmul",
        description="`matmul`: sum of the dot products of all pairs of samples; `match_probability`: log-odds of the "
        "mean probability that two samples match, ordered like the probability; `mean`: cosine of the means; `csd`: "
        "minus the mean squared distance of samples, in closed form (PCME++)",
    )
    samples: int = Field(7, ge=1, le=1000, description="J, embeddings sampled per item to compare images with captions")
    sample_seed: int = Field(
        0, ge=0, lt=2**63, description="of the noise in evaluation, which is the same for all images and all captions",
    )
    match_scale: float = Field(
        15.0, gt=0, description="a of the match probability until a loss hands over the one it learned",
    )
    match_shift: float = Field(15.0, description="b of the match probability, likewise")

    @property
    def score(self) -> Score:
        """Cosines of the means, or sums over samples."""
        return "cosine" if self.similarity == "mean" else "unbounded"
