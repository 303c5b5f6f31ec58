"""Which loss fits which network, and why not; which trainings give comparable curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from vsetune.config.component_specs import LOSSES, LossSpec, MemorySpec, NetworkSpec, SumSpec

_KINDS = {
    "embedding": "one embedding per item",
    "several_embeddings": "several embeddings per item",
    "probabilistic": "a distribution per item",
    "score": "a score per pair and no embeddings",
}
_SCORES = {
    "cosine": "cosines",
    "probability": "scores in (0, 1)",
    "unbounded": "unbounded scores",
    "order": "order violations",
}

PROTOCOL_SETTINGS = ("batch_unit", "batch_size", "validate_every_steps", "drop_last")
"""Settings of `training` that determine when a curve has a point: curves are comparable only if these are equal."""


def protocol_difference(first: Mapping[str, Any], second: Mapping[str, Any]) -> str | None:
    """The first setting of `training` (plain data) in which two curves' protocols differ; None if they compare."""
    return next((name for name in PROTOCOL_SETTINGS if first.get(name) != second.get(name)), None)


def mismatch(network: NetworkSpec, loss: LossSpec, *, batch_unit: Literal["pairs", "images"]) -> str | None:
    """Why this loss cannot train this network, in one line; None if it can."""
    return next(_reasons(network, loss, batch_unit), None)


def _reasons(network: NetworkSpec, loss: LossSpec, batch_unit: str) -> Iterator[str]:
    if isinstance(loss, SumSpec):
        for part in loss.parts.values():
            yield from _reasons(network, part.loss, batch_unit)
        return
    name, network_name = _name(loss), _name(network)
    if loss.drawn_negatives is not None and network.kind != "score":
        yield (
            f"loss {name} with drawn {loss.drawn_negatives.count} has what it draws encoded anew for every step, "
            f"network {network_name} embeds, so earlier batches can be remembered; use memory_size in place of drawn"
        )
    elif network.kind not in loss.needed_kinds:
        yield (
            f"loss {name}{_memory(loss)} needs {_listed(loss.needed_kinds, _KINDS)}, network {network_name} gives "
            f"{_KINDS[network.kind]}; use another loss, or a network that embeds"
        )
    elif network.score not in loss.needed_scores:
        yield (
            f"loss {name}{_memory(loss)} needs similarities that are {_listed(loss.needed_scores, _SCORES)}, network "
            f"{network_name} with these settings gives {_SCORES[network.score]}; {_way_out(loss)}"
        )
    if batch_unit == "images" and network.needs_pairs:
        yield (
            f"batch_unit images gives each image several captions, network {network_name} adds a loss of its own that "
            f"needs pairs; use batch_unit pairs, or set {_own_weight(network)}: 0 of the network"
        )
    if batch_unit == "images" and not loss.several_positives:
        fitting = ", ".join(sorted(key for key, spec in LOSSES.items() if spec.several_positives))
        yield (
            f"batch_unit images gives each image several positives, which {name} does not define; "
            f"use batch_unit pairs, or one of {fitting}"
        )


def _own_weight(network: NetworkSpec) -> str:
    """The settings that weight the network's own losses, as its spec declares them."""
    return " and ".join(network.own_loss_weights) or "the weight of that loss"


def _way_out(loss: LossSpec) -> str:
    if loss.needed_scores == {"order"}:
        return "give this loss `network: {absolute: true, similarity: order}` with vsepp"
    return "use another loss or other settings of the network"


def _name(spec: NetworkSpec | LossSpec) -> str:
    return str(type(spec).model_fields["name"].default)


def _memory(loss: LossSpec) -> str:
    return f" with memory_size {loss.memory_size}" if isinstance(loss, MemorySpec) and loss.memory_size else ""


def _listed(values: frozenset[str], words: dict[str, str]) -> str:
    if not values:
        return "nothing that exists (its parts contradict one another)"
    return " or ".join(words[value] for value in words if value in values)
