"""Ray's fake nodes, each with a session folder and a home of its own, as machines have: for its autoscaler, `external`.

Nodes that share a session folder share what jobs are unpacked into: the second one that needs a job's working directory
unpacks it again under the feet of the first.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import psutil
from ray.autoscaler._private.fake_multi_node.node_provider import FakeMultiNodeProvider
from ray.autoscaler.tags import (
    NODE_KIND_WORKER,
    STATUS_UP_TO_DATE,
    TAG_RAY_NODE_KIND,
    TAG_RAY_NODE_NAME,
    TAG_RAY_NODE_STATUS,
    TAG_RAY_USER_NODE_TYPE,
)
from ray_heads import end_all, ray_command

HEAD = "f" * 51 + "00000"
"""The id that Ray's provider gives to its head."""


class ProcessNodes(FakeMultiNodeProvider):
    """provider_config: `gcs_address`, and `folder`, short enough for the sockets below it."""

    def _create_node_with_resources_and_labels(
        self, node_config: Any, tags: dict[str, str], count: int, resources: dict[str, float], labels: dict[str, str]
    ) -> None:
        node_id = self._next_hex_node_id()
        folder = Path(self.provider_config["folder"]) / node_id[-2:]
        (folder / "home").mkdir(parents=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_") or "AUTH" in name}
        node_type = tags[TAG_RAY_USER_NODE_TYPE]
        process = subprocess.Popen(
            [ray_command(), "start", "--block", f"--address={self.provider_config['gcs_address']}",
             f"--temp-dir={folder}", f"--num-cpus={int(resources.get('CPU', 0))}",
             f"--num-gpus={int(resources.get('GPU', 0))}", "--dashboard-agent-listen-port=0",
             "--labels=" + ",".join(f"{key}={value}" for key, value in labels.items())],
            env=kept | {
                "HOME": str(folder / "home"), "RAY_OVERRIDE_NODE_ID_FOR_TESTING": node_id,
                "RAY_CLOUD_INSTANCE_ID": node_id, "RAY_NODE_TYPE_NAME": node_type,
            },
            stdout=(folder / "ray.out").open("w"), stderr=subprocess.STDOUT,
        )
        own_tags = {
            TAG_RAY_NODE_KIND: NODE_KIND_WORKER, TAG_RAY_USER_NODE_TYPE: node_type, TAG_RAY_NODE_NAME: node_id,
            TAG_RAY_NODE_STATUS: STATUS_UP_TO_DATE,
        }
        self._nodes[node_id] = {"tags": own_tags | tags, "node": process}

    def _terminate_node(self, node: dict[str, Any]) -> None:
        end_all(psutil.Process(node["node"].pid))


def write_config(config: dict[str, Any], path: Path, *, address: str, folder: Path, **changes: Any) -> None:
    """A cluster's file as one of processes of this machine, whose nodes are small and soon idle; written as JSON.

    changes: of node types, by name, as in `cpu={"min_workers": 1}`.
    """
    from ray.autoscaler._private.util import validate_config

    types = {name: {**each, "node_config": {}} for name, each in config["available_node_types"].items()}
    for name, changed in changes.items():
        types[name] |= changed
    types["ray.head.default"] = types.pop(config["head_node_type"]) | {"max_workers": 0}  # as the provider calls it
    nothing: list[str] = []
    unused = (
        "initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands",
        "head_start_ray_commands", "worker_start_ray_commands", "rsync_exclude", "rsync_filter", "cluster_synced_files",
    )
    ready = {
        "cluster_name": config["cluster_name"], "max_workers": 4, "idle_timeout_minutes": 0.2, "upscaling_speed": 10,
        "provider": {
            "type": "external", "module": "process_nodes.ProcessNodes", "head_node_id": HEAD, "gcs_address": address,
            "folder": str(folder), "use_node_id_as_ip": True, "disable_node_updaters": True,
            "disable_launch_config_check": True, "launch_multiple": True,
        },
        "head_node_type": "ray.head.default", "available_node_types": types, "auth": {}, "docker": {},
        "file_mounts": {}, "file_mounts_sync_continuously": False, **dict.fromkeys(unused, nothing),
    }
    validate_config(ready)
    path.write_text(json.dumps(ready), encoding="utf-8")
