"""Hyperparameters of GSMN."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from vsetune.config.component_specs import NetworkSpec, PairCost
from vsetune.config.sources.trial_inputs import NetworkReads
from vsetune.config.spec.base import Kind, Range, Score, tunable
from vsetune.errors import Problem


class GsmnSpec(NetworkSpec):
    """GSMN (Liu et al. 2020): words and regions are matched block by block, matches travel along two graphs."""

    source: ClassVar[str] = "Liu et al., CVPR 2020"
    default_parameters: ClassVar[int] = 13_248_452

    def pair_cost(self, *, regions: int, words: int) -> PairCost:
        """Products of all blocks, norms by Gram matrices of both sides, and the layers behind the two graphs."""
        blocks, hidden = self.blocks, self.hidden_size
        flops = 2 * regions * words * self.embedding_size + 2 * blocks * regions * words * (regions + words)
        flops += 2 * (regions + words) * hidden * (blocks + hidden + 1)
        if self.propagation == "paper":
            flops += 2 * regions**2 * hidden + 2 * words**2 * blocks
        numbers = 2 * blocks * regions * words + (4 * blocks + 4 * hidden) * (regions + words)
        return PairCost(flops=flops, numbers=numbers)

    @property
    def kind(self) -> Kind:
        return "score"

    @property
    def score(self) -> Score:
        return "unbounded"

    @property
    def reads(self) -> NetworkReads:
        return NetworkReads(boxes=True, dependencies=self.text_graph == "sparse")

    name: Literal["gsmn"] = "gsmn"
    text_graph: Literal["dense", "sparse"] = Field(
        "dense", description="edges between all words, or between those that the dependency parse joins",
    )
    propagation: Literal["paper", "released"] = Field(
        "paper",
        description="`paper`: a node gathers the matches of its neighbours; `released`: as in the released code it "
        "only sees its own, scaled by a function of the box positions, and dense and sparse are the same",
    )
    kernel_normalization: Literal["kernels", "neighbours"] = Field(
        "kernels",
        description="over what the weights of visual edges sum to 1: `kernels` as in the released code, `neighbours`",
    )
    attention_scale: float = tunable(
        20.0, Range(low=4.0, high=30.0, log=True), gt=0,
        description="lambda, multiplies what enters each softmax", paper="GSMN: Flickr30K 20, MS-COCO 10",
    )
    blocks: int = Field(16, ge=1, le=65_536, description="parts of a vector that are compared apart")
    kernels: int = Field(8, ge=1, le=65_536, description="Gaussian kernels over box offsets")
    hidden_size: int = Field(32, ge=1, le=65_536, description="size of a node behind the graph")

    @model_validator(mode="after")
    def _sizes_divide(self) -> GsmnSpec:
        for name, parts in (("embedding_size", "blocks"), ("hidden_size", "kernels")):
            size, count = getattr(self, name), getattr(self, parts)
            if size % count:
                raise ValueError(Problem.of(
                    "VSE-N024", "{name} {size} does not divide into {count} {parts}", name=name, size=size, count=count,
                    parts=parts,
                ))
        return self
