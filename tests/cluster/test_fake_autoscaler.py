"""The node types of cluster.yaml under Ray's own autoscaler, with processes of this machine for machines of AWS."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster_files import LABEL, ROOT, cluster_config
from ray_heads import environment_of, running_head

PORT, DASHBOARD_PORT = 23579, 23565
HEAD = "f" * 51 + "00000"
"""The id that the fake provider gives to its head."""

pytestmark = pytest.mark.slow

NODES = """
import json, sys, ray
ray.init(address=sys.argv[1], logging_level="ERROR", log_to_driver=False)
print(json.dumps([node["Labels"] for node in ray.nodes() if node["Alive"]]))
"""


def on_this_machine(config: dict[str, Any], address: str) -> dict[str, Any]:
    """The same cluster of small nodes that are processes; one CPU node is there from the start."""
    from ray.autoscaler._private.util import validate_config

    types = copy.deepcopy(config["available_node_types"])
    for each in types.values():
        each["node_config"] = {}
    types["ray.head.default"] = types.pop(config["head_node_type"]) | {"max_workers": 0}  # as the provider calls it
    types["cpu"] |= {"resources": {"CPU": 1}, "min_workers": 1}
    nothing: list[str] = []
    unused = (
        "initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands",
        "head_start_ray_commands", "worker_start_ray_commands", "rsync_exclude", "rsync_filter", "cluster_synced_files",
    )
    fake = {
        "cluster_name": config["cluster_name"], "max_workers": 3, "idle_timeout_minutes": 0.1, "upscaling_speed": 10,
        "provider": {"type": "fake_multinode", "head_node_id": HEAD, "gcs_address": address},
        "head_node_type": "ray.head.default", "available_node_types": types, "auth": {}, "docker": {},
        "file_mounts": {}, "file_mounts_sync_continuously": False, **dict.fromkeys(unused, nothing),
    }
    validate_config(fake)
    return fake


def test_a_study_runs_on_nodes_that_come_with_their_prices_and_go_again(tmp_path: Path) -> None:
    address = f"127.0.0.1:{PORT}"
    (tmp_path / "fake.json").write_text(json.dumps(on_this_machine(cluster_config(), address)))
    environment = environment_of(tmp_path, dashboard_port=DASHBOARD_PORT)
    of_head = environment | {
        "RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_CLOUD_INSTANCE_ID": HEAD,
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD,
    }
    study = tmp_path / "elastic.yaml"
    study.write_text(yaml.safe_dump({
        "study": "elastic", "data": {"path": "data/scenes", "scenes": {"train": 48, "validation": 16, "test": 16}},
        "networks": [{"name": "vsepp", "fixed": {"embedding_size": 16, "word_size": 8}}],
        "losses": [{"name": "lmh"}, {"name": "lseh"}], "search": {"configurations": 2},
        "training": {"epochs": 2, "batch_size": 40, "learning_rate": 1e-3},
    }))
    with running_head(
        of_head, PORT, DASHBOARD_PORT, "--num-cpus=0", "--dashboard-host=127.0.0.1",
        f"--autoscaling-config={tmp_path / 'fake.json'}",
    ):
        wait_for(lambda: f"{LABEL}usd-per-hour" in str(labels_of(environment, address)), "a worker")
        done = submitted(environment | {"PYTHONPATH": str(ROOT / "platform")}, study)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "elastic: 4 finished" in done.stdout
        (worker,) = [labels for labels in labels_of(environment, address) if f"{LABEL}node-type" in labels]
        assert worker[f"{LABEL}node-type"] == "cpu"
        assert float(worker[f"{LABEL}usd-per-hour"]) == 0.68


def labels_of(environment: dict[str, str], address: str) -> list[dict[str, str]]:
    """Those of every node that is alive; none while the head starts."""
    done = subprocess.run(
        [sys.executable, "-c", NODES, address], env=environment, capture_output=True, text=True, timeout=120,
        check=False,
    )
    return list(json.loads(done.stdout.splitlines()[-1])) if done.returncode == 0 else []


def wait_for(true: Any, what: str) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline, f"{what} did not come within two minutes"
        time.sleep(2)


def submitted(environment: dict[str, str], study: Path) -> subprocess.CompletedProcess[str]:
    """Repeats what a head node that has just started refuses."""
    for _ in range(30):
        done = subprocess.run(
            [sys.executable, "-m", "vsetune.cli.entry", "job", "submit", str(study)], env=environment,
            cwd=study.parent, capture_output=True, text=True, timeout=900, check=False,
        )
        if "takes no jobs yet" not in done.stderr:
            break
        time.sleep(2)
    return done
