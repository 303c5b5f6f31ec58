"""The nodes of the cluster as a driver sees them: where Prometheus finds them, and what they cost."""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from vsetune.config.spec.paths import home
from vsetune.config.study.resources import Needs
from vsetune.errors import StorageError
from vsetune.files.whole_files import make_folder, write_text
from vsetune.jobs.exported_metrics import CLUSTER_NODES, CLUSTER_PRICE
from vsetune.jobs.metrics_export import MetricsBoard
from vsetune.jobs.node_types import share_of, type_of
from vsetune.jobs.prices import price_of

LOOK_EVERY_S = 15.0


@dataclass(frozen=True)
class Node:
    """A living node. usd_per_hour: None where nobody gave it a price. metrics: HOST:PORT, None where it serves none."""

    node_id: str
    node_type: str
    cpus: float
    gpus: float
    usd_per_hour: float | None
    metrics: str | None


def targets_file(study: str) -> Path:
    """What the driver of a study writes for Prometheus (`file_sd_configs`), as long as it runs."""
    return home() / "prometheus" / "targets" / f"{study}.json"


class ClusterWatch:
    """Looks at the nodes now and then, in the thread of the board. What it has seen may be asked from any thread."""

    def __init__(
        self, study: str, board: MetricsBoard, *, nodes: Callable[[], Iterable[Node]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """nodes: None asks Ray, which must be connected."""
        self._study, self._board, self._nodes, self._clock = study, board, nodes or ray_nodes, clock
        self._file = targets_file(study)
        self._next_look = float("-inf")
        self._seen: dict[str, Node] = {}
        self._types: set[str] = set()

    def look(self) -> None:
        """If it is time again."""
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_EVERY_S
        seen = {node.node_id: node for node in self._nodes()}
        targets = sorted({node.metrics for node in seen.values() if node.metrics is not None})
        if targets != sorted({node.metrics for node in self._seen.values() if node.metrics is not None}):
            self._write(targets)
        self._seen = seen
        self._export(seen)

    def usd_per_second(self, node_id: str, needs: Needs) -> float | None:
        """Of the share of a node that a trial holds. None without a price."""
        node = self._seen.get(node_id)
        if node is None or node.usd_per_hour is None:
            return None
        return node.usd_per_hour / 3600 * share_of({"CPU": node.cpus, "GPU": node.gpus}, needs)

    def close(self) -> None:
        """Prometheus need not look for this study's nodes any longer."""
        with contextlib.suppress(OSError):
            self._file.unlink()

    def _write(self, targets: list[str]) -> None:
        """The same form and labels as Ray's own file, so that a node found in both is scraped once."""
        with contextlib.suppress(StorageError):  # a full disk: the study goes on, Prometheus keeps what it knows
            make_folder(self._file.parent)
            write_text(self._file, json.dumps([{"labels": {"job": "ray"}, "targets": targets}]))

    def _export(self, seen: Mapping[str, Node]) -> None:
        counts = Counter(node.node_type for node in seen.values())
        prices: defaultdict[str, float] = defaultdict(float)
        for node in seen.values():
            prices[node.node_type] += node.usd_per_hour or 0.0
        for gone in self._types - set(counts):
            for metric in (CLUSTER_NODES, CLUSTER_PRICE):
                self._board.drop(metric, node_type=gone)
        self._types = set(counts)
        for node_type, count in counts.items():
            self._board.set(CLUSTER_NODES, count, study=self._study, node_type=node_type)
            self._board.set(CLUSTER_PRICE, prices[node_type], study=self._study, node_type=node_type)


def ray_nodes() -> list[Node]:
    """The living nodes of the cluster that this process is connected to."""
    return [node_of(plain) for plain in ray.nodes() if plain.get("Alive")]


def node_of(plain: Mapping[str, Any]) -> Node:
    """plain: one of `ray.nodes()`."""
    labels, resources = plain.get("Labels") or {}, plain.get("Resources") or {}
    port = int(plain.get("MetricsExportPort") or 0)
    return Node(
        node_id=str(plain["NodeID"]),
        node_type=type_of(labels) or "unnamed",
        cpus=float(resources.get("CPU", 0.0)), gpus=float(resources.get("GPU", 0.0)),
        usd_per_hour=price_of(str(plain["NodeID"]), labels),
        metrics=_address(str(plain["NodeManagerAddress"]), port) if port > 0 else None,
    )


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
