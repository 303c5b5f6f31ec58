"""The Ray of a study on this machine: nothing of it listens to other machines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ray_heads import short_folder

ROOT = Path(__file__).parents[2]
STARTED = """
import json, os, sys
import psutil, ray
from vsetune.study.cluster import loopback_only

with loopback_only():
    ray.init(
        address="local", include_dashboard=False, log_to_driver=False, logging_level="ERROR", num_cpus=1,
        _temp_dir=sys.argv[1],
    )
assert ray.get(ray.remote(lambda: os.getpid()).remote()) != os.getpid()  # a worker listens as well
processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
listening = [
    (process.name(), each.laddr.ip) for process in processes for each in process.net_connections(kind="inet")
    if each.status == "LISTEN"
]
print(json.dumps(listening))
"""


@pytest.mark.slow
def test_a_ray_that_is_started_for_a_study_listens_to_this_machine_alone(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a" * 48)
    environment = os.environ | {
        "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(tmp_path / "token"), "PYTHONPATH": str(ROOT / "platform"),
    }
    with short_folder() as folder:
        done = subprocess.run(
            [sys.executable, "-c", STARTED, str(folder)], env=environment, capture_output=True, text=True,
            timeout=200, check=False,
        )
    assert done.returncode == 0, done.stderr
    listening = json.loads(done.stdout.splitlines()[-1])
    assert {"gcs_server", "raylet"} <= {name for name, _ in listening}
    assert [each for each in listening if each[1].removeprefix("::ffff:") not in ("127.0.0.1", "::1")] == []
