"""An ingested data set: its place, its splits, and the semantic vectors that are made of it."""

from __future__ import annotations

from pydantic import Field

from vsetune.config.sources.recipe import SplitName
from vsetune.config.sources.semantic_vectors import EncoderSpec, SemanticSpec
from vsetune.config.spec.base import Spec
from vsetune.config.spec.paths import PathText


class DataSpec(Spec):
    """The ingested data set a study runs on."""

    path: PathText = Field(description="folder or s3:// prefix with manifest.json")
    semantics: SemanticSpec = Field(SemanticSpec(), description="vectors of losses with `semantics: svd`")
    encoder: EncoderSpec = Field(EncoderSpec(), description="vectors of losses with `semantics: encoder`, and of SRD@k")
    train_split: SplitName = "train"
    validation_split: SplitName = "validation"
    test_split: SplitName | None = Field("test", description="scored once by the best checkpoint; null: not at all")
