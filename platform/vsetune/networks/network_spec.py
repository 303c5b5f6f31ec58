"""What every network spec declares beside its hyperparameters: its kind, what it reads, what a pair costs.

The check of network x loss pairs, of data sets, evaluation and `vsetune networks list/show` read these declarations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from vsetune.config.sources.network_reads import NetworkReads
from vsetune.config.spec.base import Spec
from vsetune.config.spec.kinds import Kind, Score


@dataclass(frozen=True)
class PairCost:
    """What comparing one encoded image with one encoded caption takes, without gradient.

    flops: a multiply-add is two. numbers: float32 held at once per pair; a bound that evaluation plans its blocks by.
    """

    flops: float
    numbers: float


class NetworkSpec(Spec):
    """What all networks share. `name` selects the network. source: the paper, and where it appeared."""

    source: ClassVar[str] = ""
    stop_gradient: ClassVar[str] = ""
    """What the network treats as a constant on purpose although it depends on a parameter."""
    own_loss_weights: ClassVar[tuple[str, ...]] = ()
    """Fields that weigh the losses which the network brings itself, 0: without. A phase of a training may set them."""
    later_keys: ClassVar[tuple[str, ...]] = ()
    """Fields that came after the first release; plain data leave them out at their defaults, so fingerprints stay."""

    if TYPE_CHECKING:
        name: str = ""

    @model_serializer(mode="wrap")
    def _as_recorded(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        plain: dict[str, Any] = handler(self)
        unchanged = {key for key in self.later_keys if getattr(self, key) == type(self).model_fields[key].default}
        return {key: value for key, value in plain.items() if key not in unchanged}

    @property
    def kind(self) -> Kind:
        """What the network makes of an item."""
        return "embedding"

    @property
    def score(self) -> Score:
        """What the similarities of this network are."""
        return "cosine"

    @property
    def reads(self) -> NetworkReads:
        """What it reads besides stored features and words; a network that reads nothing else says nothing."""
        return NetworkReads()

    @property
    def needs_pairs(self) -> bool:
        """Whether it trains on batches of pairs only, because a loss of its own compares pair with pair."""
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
