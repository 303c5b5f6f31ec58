"""What the specs of losses and networks declare beside their hyperparameters, and all of them by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, SerializeAsAny, model_validator

from vsetune.config.registry import Registry
from vsetune.config.sources.trial_inputs import NetworkReads, SemanticSource
from vsetune.config.spec.base import ALL_KINDS, ALL_SCORES, Kind, Range, Score, Spec, tunable
from vsetune.errors import Message, Problem

EMBEDDINGS: frozenset[Kind] = frozenset({"embedding", "several_embeddings"})
COSINES: frozenset[Score] = frozenset({"cosine"})


@dataclass(frozen=True)
class DrawnNegatives:
    """count: images of the train split sampled anew for every step, each with one of its captions. hardest: how many of
    them each query scores with gradient."""

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

    def terms(self) -> Mapping[str, LossSpec]:
        """The losses that are added, by their label; a single loss has an empty one."""
        return {"": self}

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


LOSSES: Registry[LossSpec] = Registry("loss", LossSpec, package="vsetune.losses", facts=("equation", "source"))


@dataclass(frozen=True)
class PairCost:
    """The cost of comparing one encoded image with one encoded caption, without gradient.

    flops: a multiply-add is two. numbers: float32 in memory at once per pair; an upper bound, from which evaluation
    plans its blocks.
    """

    flops: float
    numbers: float


class NetworkSpec(Spec):
    """What all networks share. `name` selects the network. source: the paper, and where it appeared."""

    source: ClassVar[str] = ""
    default_parameters: ClassVar[int | None] = None
    """Parameters at the default settings, for 36 regions of 2,048 and 10,000 words, for lists that do not build the
    network. A subclass has its own. None: it is built to be counted."""
    stop_gradient: ClassVar[str] = ""
    """Quantities that the network treats as constants on purpose although they depend on a parameter."""
    own_loss_weights: ClassVar[tuple[str, ...]] = ()
    """Weights of the network's own losses, 0: without. A phase of a training may set them."""

    if TYPE_CHECKING:
        name: str = ""

    @property
    def kind(self) -> Kind:
        """The kind of encoded items."""
        return "embedding"

    @property
    def score(self) -> Score:
        """The kind of similarities."""
        return "cosine"

    @property
    def reads(self) -> NetworkReads:
        """Its inputs besides stored features and words; the default is none."""
        return NetworkReads()

    @property
    def has_constant_images(self) -> bool:
        """Whether a frozen image tower always sees the same view of a photograph: then its vectors are computed once
        per data set."""
        return False

    @property
    def needs_pairs(self) -> bool:
        """Whether it trains only on batches of pairs, because one of its own losses compares pairs."""
        return False

    def pair_cost(self, *, regions: int, words: int) -> PairCost:
        """Cost of one pair: here of a dot product. words: start and end included."""
        return PairCost(flops=2 * self.embedding_size, numbers=1)

    embedding_size: int = Field(1024, ge=1, le=65_536, description="D, size of the joint space")
    word_size: int = Field(300, ge=1, le=65_536, description="size of word embeddings")
    start_from: str | None = Field(
        None, description="weights.safetensors of `vsetune networks import`, or the best weights of a trial of the "
        "same network, to train further; null: fresh ones",
    )


NETWORKS: Registry[NetworkSpec] = Registry("network", NetworkSpec, package="vsetune.networks", facts=("source",))

AnyNetwork = Annotated[SerializeAsAny[NetworkSpec], NETWORKS.selected()]


SUM = "sum"
DIFFERENT_VECTORS = Message(
    "VSE-C052", "{whose} read different semantic vectors ({sources}); set `semantics` of them to the same"
)

SingleLoss = Annotated[SerializeAsAny[LossSpec], LOSSES.selected()]


class WeightedLoss(Spec):
    """One term of a sum."""

    weight: float = tunable(
        1.0, Range(low=0.01, high=10, log=True), gt=0,
        description="factor of this loss in the sum", paper="our addition",
    )
    loss: SingleLoss


class SumSpec(LossSpec):
    """Weighted sum of losses on the same batch; every part is logged by its name, before its weight."""

    equation: ClassVar[str] = "sum over parts of weight x loss"
    source: ClassVar[str] = "composition in the study file"

    name: Literal["sum"] = "sum"
    parts: dict[str, WeightedLoss] = Field(min_length=1, description="losses by the name they are logged under")

    def terms(self) -> Mapping[str, LossSpec]:
        return {label: part.loss for label, part in self.parts.items()}

    @property
    def semantic_source(self) -> SemanticSource | None:
        return next((each.semantic_source for each in self.terms().values() if each.semantic_source), None)

    @property
    def drawn_negatives(self) -> DrawnNegatives | None:
        return next((each.drawn_negatives for each in self.terms().values() if each.drawn_negatives), None)

    @property
    def needed_kinds(self) -> frozenset[Kind]:
        return frozenset.intersection(*(each.needed_kinds for each in self.terms().values()))

    @property
    def needed_scores(self) -> frozenset[Score]:
        return frozenset.intersection(*(each.needed_scores for each in self.terms().values()))

    @model_validator(mode="after")
    def _parts_read_and_sample_alike(self) -> SumSpec:
        reading = {label: each.semantic_source for label, each in self.terms().items() if each.semantic_source}
        if len({*reading.values()}) > 1:
            sources = ", ".join(f"{label}: {source}" for label, source in reading.items())
            raise ValueError(DIFFERENT_VECTORS(whose="parts", sources=sources))
        sampled = {each.drawn_negatives for each in self.terms().values()} - {None}
        if len(sampled) > 1:
            counts = " and ".join(sorted(f"{each.count}, hardest {each.hardest}" for each in sampled if each))
            raise ValueError(Problem.of(
                "VSE-C053", "parts sample different negatives ({counts}); set `drawn` and `hardest` of them alike",
                counts=counts,
            ))
        return self


AnyLoss = Annotated[SerializeAsAny[LossSpec], LOSSES.selected(SumSpec)]
