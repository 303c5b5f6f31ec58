"""Scoring of a trial: the ranking of its validations, the scores of its best checkpoint, its gallery."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from vsetune.config.spec.base import Count, Seed, Spec
from vsetune.home.paths import PathText


class RerankSpec(Spec):
    """A network that embeds proposes candidates, the network that is trained decides among them (decision 0041)."""

    later_keys: ClassVar[tuple[str, ...]] = ("content",)

    first: str = Field(
        min_length=1, max_length=250,
        description="STUDY/TRIAL (or a run id) that has finished, of a network that embeds, on the same data set",
    )
    top: Count = Field(50, ge=1, description="candidates that it proposes for every image and for every caption")
    content: str | None = Field(
        None, pattern=r"^[0-9a-f]{64}$",
        description="SHA-256 of its settings and weights; written in when a study is made ready, so that no others "
        "take their place",
    )


class CocoSpec(Spec):
    """Published judgements of MS-COCO's test images. Relative paths are under VSETUNE_HOME."""

    captions: PathText = Field(description="Karpathy's dataset_coco.json, which has the ids of the captions")
    eccv_caption: PathText | None = Field(
        None, description="folder with eccv_image_to_caption.json and eccv_caption_to_image.json (Chun et al. 2022): "
        "mAP@R, R-Precision, R@1",
    )
    cxc: PathText | None = Field(
        None, description="sits_test.csv of Crisscrossed Captions (Parekh et al. 2021): R@1, R@5, R@10; or its folder, "
        "where networks that embed also have captions found by captions (sts_test.csv) and images by images "
        "(sis_test.csv)",
    )


def has_all_crisscrossed(cxc: str) -> bool:
    """Whether `cxc` names the folder with all three files, not the one of captions and images."""
    return not cxc.endswith(".csv")


class EvaluationSpec(Spec):
    """What is ranked, and numbers beside the recalls.

    The best checkpoint is scored on the whole test split, or else on what is validated.
    """

    later_keys: ClassVar[tuple[str, ...]] = ("coco", "rerank", "validation_images")

    protocols: list[Literal["coco_test_5k", "coco_test_1k", "first_caption"]] = Field(
        default_factory=list, max_length=10,
        description="named protocols beside the recalls over all captions. coco_test_5k, coco_test_1k: of MS-COCO, the "
        "split must have its 5,000 images; first_caption: over the first caption of every image alone",
    )
    positive_ranks: bool = Field(False, description="MeanR, MeanWorstR and coverage@k over all positives (MSE**)")
    srd_at: list[Annotated[Count, Field(ge=1)]] = Field(
        default_factory=list, max_length=100,
        description="k of SRD@k (Zhang et al., Eq. 11), by the vectors of data.encoder",
    )
    relevance: PathText | None = Field(
        None,
        description="CSV file `image,caption_image,caption`: further captions that fit an image (image ids as "
        "ingested, caption = its place in the list of its own image, from 0); relative paths are under VSETUNE_HOME",
    )
    coco: CocoSpec | None = Field(None, description="scores by extended positives of MS-COCO: ECCV Caption, CxC")
    rerank: RerankSpec | None = Field(
        None, description="score only what another network proposes, in validations and in the end; null: every pair",
    )
    validation_images: Count | None = Field(
        None, ge=1,
        description="images of the validation split that are ranked, evenly spread, with all their captions; null: all",
    )

    @property
    def asks_for_more(self) -> bool:
        """Whether the best checkpoint needs more than the recalls of its validation."""
        return self.positive_ranks or bool(self.of_whole_split)

    @property
    def of_whole_split(self) -> list[str]:
        """The given keys that are defined only for all images of a split."""
        asked = {"protocols": self.protocols, "srd_at": self.srd_at, "relevance": self.relevance, "coco": self.coco}
        return [key for key, value in asked.items() if value]


class GallerySpec(Spec):
    """Queries sampled at random from a split, and the number of retrieved items to show for each."""

    captions: int = Field(8, ge=0, le=200, description="captions sampled as queries")
    images: int = Field(6, ge=0, le=200, description="images sampled as queries")
    top: int = Field(5, ge=1, le=50, description="items shown of a ranking, best first")
    hardest: int = Field(10, ge=0, le=100, description="hardest negatives of the whole split, in each direction")
    written: int = Field(4, ge=0, le=50, description="images with sentences that the network writes, if it does")
    sentences: int = Field(6, ge=1, le=100, description="that were kept shown of each, highest score first")
    seed: Seed = Field(0, description="of the draw")
    thumbnail: int = Field(240, ge=32, le=1024, description="pixels of the longer side of a picture")
