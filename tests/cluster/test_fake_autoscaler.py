"""The node types of cluster.yaml under Ray's own autoscaler, with processes of this machine for machines of AWS."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster_files import LABEL, ROOT, cluster_config
from process_nodes import HEAD, write_config
from ray_heads import environment_of, running_head, short_folder

PORT, DASHBOARD_PORT = 23579, 23565
pytestmark = pytest.mark.slow

NODES = """
import json, sys, ray
ray.init(address=sys.argv[1], logging_level="ERROR", log_to_driver=False)
print(json.dumps([node["Labels"] for node in ray.nodes() if node["Alive"]]))
"""


def test_a_study_runs_on_nodes_that_come_with_their_prices(tmp_path: Path) -> None:
    address = f"127.0.0.1:{PORT}"
    environment = environment_of(tmp_path, dashboard_port=DASHBOARD_PORT)
    of_head = environment | {
        "RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_CLOUD_INSTANCE_ID": HEAD,
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD, "PYTHONPATH": str(ROOT / "tests" / "shared"),
    }
    study = tmp_path / "elastic.yaml"
    study.write_text(yaml.safe_dump({
        "study": "elastic", "data": {"path": "data/scenes", "scenes": {"train": 48, "validation": 16, "test": 16}},
        "networks": [{"name": "vsepp", "fixed": {"embedding_size": 16, "word_size": 8}}],
        "losses": [{"name": "lmh"}, {"name": "lseh"}], "search": {"configurations": 2},
        "training": {"epochs": 2, "batch_size": 40, "learning_rate": 1e-3},
    }))
    with short_folder() as folder:
        write_config(
            cluster_config(), tmp_path / "fake.json", address=address, folder=folder,
            cpu={"resources": {"CPU": 1}, "min_workers": 1},
        )
        options = ["--num-cpus=0", "--dashboard-host=127.0.0.1", f"--autoscaling-config={tmp_path / 'fake.json'}"]
        with running_head(of_head, PORT, DASHBOARD_PORT, *options):
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
