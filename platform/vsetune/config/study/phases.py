"""Phases of a training: what trains, at which rate, and how the loss changes (Malali and Keller, Section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from vsetune.config.spec.base import Spec


class PhaseSpec(Spec):
    """One phase. A new phase starts with fresh optimizers; network and loss keep what they have learned."""

    epochs: float | None = Field(
        None, gt=0, le=1e6, description="length; null in the last phase: the rest of training.epochs",
    )
    trains: Literal["all", "loss"] = Field(
        "all", description="`loss` freezes the network and trains only what the loss learns",
    )
    learning_rate_factor: float = Field(
        1.0, gt=0,
        description="times training.learning_rate; drops, or the linear schedule, begin anew with the phase",
    )
    loss: dict[str, Any] = Field(
        default_factory=dict, description="hyperparameters of the loss in this phase; of a sum: by part",
    )
    network: dict[str, float] = Field(
        default_factory=dict, description="weights of the losses that the network brings, in this phase: of tags "
        "mlm_weight, istm_weight, wod_weight, woc_weight; of vsrn captioning_weight; of cgmn matching_weight",
    )

    @model_serializer(mode="wrap")
    def _as_recorded(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without `network` if it changes nothing, so that fingerprints of such phases stay the same across versions.
        """
        plain: dict[str, Any] = handler(self)
        return plain if self.network else {key: value for key, value in plain.items() if key != "network"}

    @model_validator(mode="after")
    def _a_frozen_network_adds_no_loss(self) -> PhaseSpec:
        if self.trains == "loss" and self.network:
            raise ValueError("network: `trains: loss` freezes it, and then it brings no loss; leave out one of them")
        return self

    @field_validator("loss")
    @classmethod
    def _keeps_the_loss(cls, settings: dict[str, Any]) -> dict[str, Any]:
        if "name" in settings:
            raise ValueError("name: a phase changes settings of the loss, not the loss itself; remove it")
        return settings


def phase_starts(phases: Sequence[PhaseSpec], epochs: float) -> list[float]:
    """The epoch at which each phase begins; [0] without phases. ValueError when they do not fill `epochs` exactly."""
    starts = [0.0]
    for number, phase in enumerate(phases[:-1]):
        if phase.epochs is None:
            raise ValueError(f"phases[{number}].epochs: only the last phase may leave it out")
        starts.append(starts[-1] + phase.epochs)
    if not phases:
        return starts
    last = phases[-1].epochs
    if starts[-1] >= epochs or (last is not None and abs(starts[-1] + last - epochs) > 1e-9):
        total = starts[-1] + (last or 0.0)
        raise ValueError(
            f"phases: they take {total:g} epochs{'' if last else ' before the last one'}, training.epochs is "
            f"{epochs:g}; make them agree, or leave out epochs of the last phase"
        )
    return starts
