"""Named test protocols: which images are ranked against which captions.

Numbers under different protocols are not comparable: with folds, candidates come from the query's own fold only, so
every recall is at least that of the whole set.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from vsetune.errors import DataError
from vsetune.metrics.ranks import RANKING_PROTOCOL
from vsetune.metrics.recall import RetrievalScores, owner_fold_scores
from vsetune.metrics.score_blocks import Scores


@dataclass(frozen=True)
class RankingProtocol:
    """How a split is ranked; the split itself (its images, in order) is recorded beside it.

    version: raise it when numbers under this name change. folds: equal parts of consecutive images, ranked separately
    and averaged. images: the number that the protocol is defined for, None for any.
    """

    name: str
    version: int
    folds: int
    images: int | None = None

    def scores(self, scores: Scores, owner: Tensor) -> RetrievalScores:
        """Recalls under this protocol. owner and errors as in retrieval_scores.

        Raises DataError too if the number of images is not that of the protocol or does not divide into its folds.
        """
        images, _ = scores.shape
        if self.images is not None and images != self.images:
            raise DataError(f"{self.name}: got {images} images, need the {self.images} of the protocol")
        return owner_fold_scores(scores, owner, folds=self.folds)

    def as_dict(self) -> dict[str, str | int | None]:
        """Entries to store with a result, which must match before numbers are compared."""
        return {
            "protocol": self.name, "protocol_version": self.version, "protocol_images": self.images,
            "folds": self.folds, "tie_rule": RANKING_PROTOCOL["tie_rule"],
            "score_dtype": RANKING_PROTOCOL["score_dtype"], "ranking_version": RANKING_PROTOCOL["version"],
        }


COCO_TEST_5K = RankingProtocol("coco_test_5k", version=1, folds=1, images=5000)
COCO_TEST_1K = RankingProtocol("coco_test_1k", version=1, folds=5, images=5000)
