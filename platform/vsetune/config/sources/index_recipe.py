"""The index recipe: shards of other software that become a data set without being rewritten."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from vsetune.config.sources.recipe import expand_path
from vsetune.config.spec.base import Count, DataSetName, Spec
from vsetune.errors import Problem
from vsetune.home.paths import PathText

CAPTIONS_AT = r"^(txt|txt_lines|json\.[A-Za-z0-9_-]{1,60})$"
"""Place of the captions in a sample: the member `txt` or its lines, or a field of the member `json`."""
KeyEnd = Literal["first_dot", "last_dot"]
"""Dot in the name of a member (without folders) that ends the key of its sample; its suffix begins behind it."""


class ShardSource(Spec):
    """Shards that belong together."""

    shards: PathText = Field(
        description="path or s3:// address, `{00000..00999}` for a row of them, `*.tar` for those that are there and "
        "that no other key names; relative: under the working directory",
    )
    weight: float = Field(
        1.0, gt=0, le=1000, description="how often an epoch reads each image; 0.5: half of the images, others in every "
        "epoch; for training alone",
    )


def _as_sources(value: Any) -> Any:
    """A text is one source; so is each text of a list."""
    listed = value if isinstance(value, list) else [value]
    return [{"shards": each} if isinstance(each, str) else each for each in listed]


Sources = Annotated[list[ShardSource], BeforeValidator(_as_sources)]


class IndexSpec(Spec):
    """Shards that are read as they are."""

    later_keys: ClassVar[tuple[str, ...]] = ("key_ends_at",)

    shards: Sources = Field(min_length=1, max_length=1000, description="of the train split: a pattern, or a list")
    validation: Sources = Field(min_length=1, max_length=1000)
    test: Sources = Field(default_factory=list, max_length=1000, description="empty: there is no test split")
    captions: str = Field(
        "txt", pattern=CAPTIONS_AT, description="`txt`: the whole text is a caption; `txt_lines`: each line of it; "
        "`json.FIELD`: a caption, or a list of them, in that field",
    )
    key_ends_at: KeyEnd = Field(
        "first_dot", description="where names of members are split into key and suffix: `22.05.jpg` is 22 and 05.jpg "
        "at the first dot, as webdataset splits it, and 22.05 and jpg at the last",
    )
    duplicates: Literal["report", "leave_out"] = Field(
        "report", description="what happens to train images that are in validation or test too",
    )
    perceptual: bool = Field(
        False, description="images that look the same are duplicates too, by a 64-bit difference hash; without it only "
        "equal bytes are",
    )
    on_damaged: Literal["refuse", "skip"] = Field(
        "refuse", description="missing and damaged shards: `skip` leaves them out, and uses the part before the damage",
    )
    vocabulary_min_count: Count = Field(4, ge=1, description="times a word must stand in the train captions")

    @model_validator(mode="after")
    def _weights_are_for_training(self) -> IndexSpec:
        for split, listed in (("validation", self.validation), ("test", self.test)):
            for source in listed:
                if source.weight != 1:
                    raise ValueError(Problem.of(
                        "VSE-C003", "got {got}, need {need}", got=f"weight {source.weight:g} in {split}",
                        need="weight 1",
                    ))
        return self

    def sources(self) -> Iterator[tuple[str, str, ShardSource]]:
        """(split, key in the recipe, source) in the order of indexing; training comes last."""
        for split, key, listed in (
            ("validation", "validation", self.validation), ("test", "test", self.test), ("train", "shards", self.shards)
        ):
            for source in listed:
                path = expand_path(source.shards, key=key)
                yield split, key, source.model_copy(update={"shards": path})


class IndexRecipe(IndexSpec):
    """Shards as they are in, manifest and vocabulary out. All but `output` fixes the bytes of both."""

    name: DataSetName = Field(description="name of the data set")
    output: PathText = Field(description="folder for the manifest; relative: under VSETUNE_HOME")

    @classmethod
    def of(cls, spec: IndexSpec, output: str) -> IndexRecipe:
        """The recipe of a study's `data.index`, named after its folder."""
        name = re.sub("[^A-Za-z0-9._-]", "-", PurePosixPath(output).name).lstrip("._-")[:100] or "index"
        return cls.model_validate({**spec.to_plain(), "name": name, "output": output})

    def content_fingerprint(self) -> str:
        """Fingerprint of all but `name` and `output`."""
        return self.model_copy(update={"name": "index", "output": "."}).fingerprint()
