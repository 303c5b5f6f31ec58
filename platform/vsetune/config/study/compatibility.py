"""Which loss fits which network, and why not; which trainings give comparable curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from vsetune.config.component_specs import LOSSES, LossSpec, MemorySpec, NetworkSpec
from vsetune.config.registry import name_of
from vsetune.errors import Problem

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


def mismatch(network: NetworkSpec, loss: LossSpec, *, batch_unit: Literal["pairs", "images"]) -> Problem | None:
    """Why this loss cannot train this network; None if it can."""
    reasons = (reason for term in loss.terms().values() for reason in _reasons(network, term, batch_unit))
    return next(reasons, None)


def _reasons(network: NetworkSpec, loss: LossSpec, batch_unit: str) -> Iterator[Problem]:
    name, network_name = name_of(type(loss)), name_of(type(network))
    memory = loss.memory_size if isinstance(loss, MemorySpec) else 0
    shown = f"{name} with memory_size {memory}" if memory else name
    if loss.drawn_negatives is not None and network.kind != "score":
        yield Problem.of(
            "VSE-C060", "loss {loss} with drawn {count} encodes its negatives anew for every step, network {network} "
            "embeds, so earlier batches can be remembered; use memory_size in place of drawn", loss=name,
            count=loss.drawn_negatives.count, network=network_name,
        )
    elif network.kind not in loss.needed_kinds:
        yield Problem.of(
            "VSE-C061", "loss {loss} needs {need}, network {network} gives {got}; use another loss, or a network that "
            "embeds", loss=shown, need=_listed(loss.needed_kinds, _KINDS), network=network_name,
            got=_KINDS[network.kind],
        )
    elif network.score not in loss.needed_scores:
        need, got = _listed(loss.needed_scores, _SCORES), _SCORES[network.score]
        if loss.needed_scores == {"order"}:
            yield Problem.of(
                "VSE-C063", "loss {loss} needs similarities that are {need}, network {network} with these settings "
                "gives {got}; give this loss `network: {{absolute: true, similarity: order}}` with vsepp", loss=shown,
                need=need, network=network_name, got=got,
            )
        else:
            yield Problem.of(
                "VSE-C062", "loss {loss} needs similarities that are {need}, network {network} with these settings "
                "gives {got}; use another loss or other settings of the network", loss=shown, need=need,
                network=network_name, got=got,
            )
    if batch_unit == "images" and network.needs_pairs:
        weights = " and ".join(network.own_loss_weights) or "the weight of that loss"
        yield Problem.of(
            "VSE-C064", "batch_unit images gives each image several captions, network {network} adds a loss of its own "
            "that needs pairs; use batch_unit pairs, or set {weight}: 0 of the network", network=network_name,
            weight=weights,
        )
    if batch_unit == "images" and not loss.several_positives:
        fitting = ", ".join(sorted(key for key, spec in LOSSES.items() if spec.several_positives))
        yield Problem.of(
            "VSE-C065", "batch_unit images gives each image several positives, which {loss} does not define; use "
            "batch_unit pairs, or one of {fitting}", loss=name, fitting=fitting,
        )


def _listed(values: frozenset[str], words: dict[str, str]) -> str:
    if not values:
        return "nothing that exists (its parts contradict one another)"
    return " or ".join(words[value] for value in words if value in values)
