"""What every loss spec declares beside its hyperparameters, and every loss by the name that study files use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from vsetune.config.components.catalogue import Catalogue
from vsetune.config.sources.inputs import SemanticSource
from vsetune.config.spec.base import ALL_KINDS, ALL_SCORES, Kind, Score, Spec

EMBEDDINGS: frozenset[Kind] = frozenset({"embedding", "several_embeddings"})
COSINES: frozenset[Score] = frozenset({"cosine"})


@dataclass(frozen=True)
class DrawnNegatives:
    """count: images of the train split drawn anew for every step, each with one of its captions. hardest: of what each
    query meets among them, so many are scored with gradient."""

    count: int
    hardest: int


class LossSpec(Spec):
    """What all losses share. `name` selects the loss.

    equation: the formula in plain text, S = similarity of images (rows) and captions (columns). source: paper and
    equation numbers. kinds, scores: what the network must give. several_positives: also takes batch_unit images.
    stop_gradient: what the loss treats as a constant on purpose although it depends on the batch or on a parameter.
    """

    if TYPE_CHECKING:
        name: str = ""

    equation: ClassVar[str]
    source: ClassVar[str]
    kinds: ClassVar[frozenset[Kind]] = ALL_KINDS
    scores: ClassVar[frozenset[Score]] = ALL_SCORES
    several_positives: ClassVar[bool] = False
    stop_gradient: ClassVar[str] = ""

    @property
    def semantic_source(self) -> SemanticSource | None:
        """Which semantic vectors of the captions the loss reads; None: none."""
        return None

    @property
    def drawn_negatives(self) -> DrawnNegatives | None:
        """What the loss compares the batch with beside the batch itself; None: nothing."""
        return None

    @property
    def lasting_sizes(self) -> Mapping[str, int]:
        """Sizes, by setting, of what the loss learns in all phases of a training; they stay the same in all of them."""
        return {}

    @property
    def needed_kinds(self) -> frozenset[Kind]:
        """Kinds of networks this loss fits with these settings."""
        return self.kinds

    @property
    def needed_scores(self) -> frozenset[Score]:
        """Kinds of similarities this loss fits with these settings."""
        return self.scores


class MemorySpec(LossSpec):
    """Losses of hinges that can take further negatives from earlier batches."""

    memory_size: int = Field(
        0, ge=0, le=10_000_000,
        description="pairs of earlier batches kept as further negatives (cross-batch memory, Wang et al. 2020); "
        "0: none",
    )
    memory_start_epoch: int = Field(
        1, ge=0, le=1_000_000,
        description="first epoch (0-based) that uses the memory; before, embeddings move too fast",
    )

    @property
    def needed_kinds(self) -> frozenset[Kind]:
        return self.kinds & {"embedding"} if self.memory_size else self.kinds

    @property
    def needed_scores(self) -> frozenset[Score]:
        return self.scores & {"cosine"} if self.memory_size else self.scores


def warmup_epochs() -> int:
    """The field of losses that may start with the sum of hinges."""
    return Field(0, ge=0, le=1_000_000, description="first epochs that use the sum of hinges instead")


def semantics_field(default: SemanticSource) -> SemanticSource:
    """The field of losses that read semantic vectors; searchable on request."""
    return Field(
        default, description="vectors of the captions: `svd` (data.semantics) or `encoder` (data.encoder)",
    )


LOSSES: Catalogue[LossSpec] = Catalogue("loss", LossSpec, "vsetune.losses")
