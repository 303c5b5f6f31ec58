"""What the best checkpoint is scored by, once, at the end of a trial."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from vsetune.config.spec.base import Count, Spec
from vsetune.config.spec.paths import PathText


class EvaluationSpec(Spec):
    """Numbers beside the recalls of the whole split. The split is the test split, or else the validation split."""

    protocols: list[Literal["coco_test_5k", "coco_test_1k"]] = Field(
        default_factory=list, max_length=10,
        description="named test protocols of MS-COCO; the split must have their 5,000 images",
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
