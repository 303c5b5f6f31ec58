"""The Ray of a study on this machine: nothing of it listens to other machines, and it has no more than trials need."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from ray_heads import short_folder

from vsetune.jobs.bare_ray import kept_port

ROOT = Path(__file__).parents[2]
STARTED = """
import json, os, sys, time
import psutil, ray
from vsetune.jobs.bare_ray import bare_ray, workers_ahead
from vsetune.jobs.loopback import loopback_only

with loopback_only(), bare_ray():
    ray.init(
        address="local", include_dashboard=False, log_to_driver=False, logging_level="ERROR", num_cpus=1,
        _temp_dir=sys.argv[1], _system_config=workers_ahead(["wave"]),
    )

class Worker:
    def found(self):
        return os.getpid(), "wave" in sys.modules

from ray.util import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

def waiting():
    below = psutil.Process().children(recursive=True)
    return [process.pid for process in below if process.cmdline()[:1] == ["ray::IDLE"]]

while not waiting():
    time.sleep(0.1)
ahead = waiting()
place = placement_group([{"CPU": 1}])  # as Tune does it: the CPU is promised before there is an actor
assert place.wait(60)
time.sleep(3)
made = ray.remote(Worker).options(
    num_cpus=1, runtime_env={"env_vars": {}}, scheduling_strategy=PlacementGroupSchedulingStrategy(place)
).remote()
worker, is_preloaded = ray.get(made.found.remote())
processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
listening = [
    (process.name(), each.laddr.ip) for process in processes for each in process.net_connections(kind="inet")
    if each.status == "LISTEN"
]
scripts = [word.rpartition("/")[2] for process in processes for word in process.cmdline()[1:] if word.endswith(".py")]
found = {"listening": listening, "scripts": scripts, "began_ahead": worker in ahead, "preloaded": is_preloaded}
print(json.dumps(found))
"""


@pytest.mark.slow
def test_a_ray_that_is_started_for_a_study_listens_to_this_machine_alone_and_has_only_what_runs_trials(
    tmp_path: Path,
) -> None:
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
    found = json.loads(done.stdout.splitlines()[-1])
    listening = found["listening"]
    assert {"gcs_server", "raylet"} <= {name for name, _ in listening}
    assert [each for each in listening if each[1].removeprefix("::ffff:") not in ("127.0.0.1", "::1")] == []
    assert not {"monitor.py", "log_monitor.py", "dashboard.py"} & set(found["scripts"])
    assert found["preloaded"]
    assert found["began_ahead"], "the worker that had begun ahead was ended before its work came"


def test_a_kept_port_goes_to_who_asks_for_it_and_to_nobody_who_asks_for_any() -> None:
    port = kept_port()
    with socket.socket() as another, pytest.raises(OSError, match=str(errno.EADDRINUSE)):
        another.bind(("127.0.0.1", port))  # without SO_REUSEADDR it is in use
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", port))
        server.listen()
