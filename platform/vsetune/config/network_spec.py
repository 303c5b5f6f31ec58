"""What every network spec declares beside its hyperparameters, and every network by its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field, SerializeAsAny, SerializerFunctionWrapHandler, model_serializer

from vsetune.config.components.catalogue import Catalogue, selected_by_name
from vsetune.config.sources.inputs import NetworkReads
from vsetune.config.spec.base import Kind, Score, Spec


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
    stop_gradient: ClassVar[str] = ""
    """Quantities that the network treats as constants on purpose although they depend on a parameter."""
    own_loss_weights: ClassVar[tuple[str, ...]] = ()
    """Weights of the network's own losses, 0: without. A phase of a training may set them."""
    later_keys: ClassVar[tuple[str, ...]] = ()
    """Fields added after the first release; plain data omit them at their defaults, so that fingerprints do not
    change."""

    if TYPE_CHECKING:
        name: str = ""

    @model_serializer(mode="wrap")
    def _as_recorded(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        plain: dict[str, Any] = handler(self)
        unchanged = {key for key in self.later_keys if getattr(self, key) == type(self).model_fields[key].default}
        return {key: value for key, value in plain.items() if key not in unchanged}

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


NETWORKS: Catalogue[NetworkSpec] = Catalogue("network", NetworkSpec, "vsetune.networks")

AnyNetwork = Annotated[SerializeAsAny[NetworkSpec], selected_by_name(lambda: NETWORKS)]
