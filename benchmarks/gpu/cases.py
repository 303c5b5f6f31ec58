"""The trainings that are compared: every network and every loss, small."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from vsetune.config.component_specs import LOSSES, NETWORKS
from vsetune.config.study.compatibility import mismatch
from vsetune.config.study.training import TrialSpec

SIZES: dict[str, Any] = {
    "embedding_size": 32, "word_size": 24, "pooling_size": 16, "similarity_size": 16, "captioning_size": 16,
    "blocks": 4, "kernels": 4, "hidden_size": 8, "samples": 3, "layers": 2, "heads": 2, "masked_copies": 2,
    "refills": 2, "synthetic_negatives": 3,
}
"""Fields that are made small where a network has them."""
NETWORK_SETTINGS: dict[str, dict[str, Any]] = {"cgmn": {"caption_graph": "dense"}}
LOSS_SETTINGS: dict[str, dict[str, Any]] = {
    "many_to_many": {"semantics": "svd"}, "semantic_center": {"quantised_centers": 8},
}
"""What the made data set has no files for, or would take long."""


def small_network(name: str, **settings: Any) -> dict[str, Any]:
    """Settings of a network, 32 wide."""
    fields = NETWORKS[name].model_fields
    small = {field: size for field, size in SIZES.items() if field in fields}
    return {"name": name, **small, **NETWORK_SETTINGS.get(name, {}), **settings}


def published_network(name: str) -> dict[str, Any]:
    """Settings of a network at the size of its paper."""
    return {"name": name, **NETWORK_SETTINGS.get(name, {})}


def small_loss(name: str) -> dict[str, Any]:
    """Settings of a loss that the made data set has all for."""
    return {"name": name, **LOSS_SETTINGS.get(name, {})}


@dataclass(frozen=True)
class Case:
    """A training: settings of its network and its loss, and what its batches count."""

    network: dict[str, Any]
    loss: dict[str, Any]
    unit: str

    @property
    def name(self) -> str:
        return f"{self.network['name']}.{self.loss['name']}"

    @classmethod
    def of(cls, network: dict[str, Any], loss: dict[str, Any]) -> Case | None:
        """With the batch unit that this loss needs to train this network; None where it does not. top-f: batches of
        images, to see several positives."""
        units: tuple[Literal["images", "pairs"], ...] = ("pairs", "images")
        specs = NETWORKS[network["name"]].model_validate(network), LOSSES[loss["name"]].model_validate(loss)
        for unit in reversed(units) if loss["name"] == "top_f" else units:
            if mismatch(*specs, batch_unit=unit) is None:
                return cls(network, loss, unit)
        return None


def every_case() -> dict[str, Case]:
    """By `network.loss`: every network once, with LMH where it can, then every loss once, with VSE++ where it can."""
    networks, losses = {name: small_network(name) for name in NETWORKS}, {name: small_loss(name) for name in LOSSES}
    orders = small_network("vsepp", absolute=True, similarity="order")
    found = [_first((network, loss) for loss in (losses["lmh"], *losses.values())) for network in networks.values()]
    for name, loss in losses.items():
        of_its_own = [networks[name]] if name in networks else []
        found.append(_first((each, loss) for each in (*of_its_own, networks["vsepp"], orders, *networks.values())))
    return {case.name: case for case in found}


def _first(settings: Iterable[tuple[dict[str, Any], dict[str, Any]]]) -> Case:
    return next(case for case in itertools.starmap(Case.of, settings) if case is not None)


def trial_of(
    data: str, network: dict[str, Any], loss: dict[str, Any], *, seed: int = 0, **training: Any
) -> TrialSpec:
    """A trial of this check; keyword arguments change its `training`."""
    recipe = {"epochs": 4.0, "batch_size": 16, "learning_rate": 1e-3, "shuffle_pairs": 200}
    cell = f"{network['name']}.{loss['name']}"
    return TrialSpec.model_validate({
        "study": "gpu-check", "trial": f"{cell}-c00-s{seed}", "cell": cell, "seed": seed, "data": {"path": data},
        "network": network, "loss": loss, "training": recipe | training,
    })
