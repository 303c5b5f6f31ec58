"""Price of a trial's place, from the labels of its node (`vsetune.io/usd-per-hour`, see `cluster.yaml`)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from typing import Any

import ray

from vsetune.config.study.resources import Needs
from vsetune.jobs.node_types import PRICE_LABEL, share_of, type_of

_log = logging.getLogger(__name__)


def price_of(node_id: str, labels: Mapping[str, str]) -> float | None:
    """Dollars per hour of a whole node. None without the label, or if it is not a number, which is logged once."""
    return _price(node_id, labels.get(PRICE_LABEL))


def place_of_this_worker(needs: Needs) -> dict[str, str]:
    """For `AttemptStart.environment`: node, its type, and usd_per_hour of the trial's share if the node has a price.

    Empty outside Ray.
    """
    if not ray.is_initialized():
        return {}
    node = _this_node()
    labels = node.get("Labels", {})
    place = {"node": str(node["NodeManagerAddress"])} | ({"node_type": type_of(labels)} if type_of(labels) else {})
    price = price_of(node["NodeID"], labels)
    return place if price is None else place | {"usd_per_hour": f"{price * share_of(node['Resources'], needs):.6g}"}


def node_of_this_worker() -> str | None:
    """Ray's id of this worker's node; None outside Ray."""
    return str(ray.get_runtime_context().get_node_id()) if ray.is_initialized() else None


def _this_node() -> dict[str, Any]:
    here = node_of_this_worker()
    found: dict[str, Any] = next(node for node in ray.nodes() if node["NodeID"] == here)
    return found


@cache
def _price(node_id: str, label: str | None) -> float | None:
    if label is None:
        return None
    try:
        return float(label)
    except ValueError:
        _log.warning("node %s: label %s is %s, need dollars per hour; counted without a price", node_id[:8],
                     PRICE_LABEL, label)
        return None
