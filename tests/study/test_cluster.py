"""What names no Ray cluster is told in one line, at once."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from ray_heads import short_folder
from refusals import refused

from vsetune.errors import UsageError
from vsetune.home import paths
from vsetune.home.node_cache import node_cache
from vsetune.study.cluster import cluster_address, ray_cluster
from vsetune.study.node_types import own_cpus
from vsetune.study.stopping import StopRequest
from vsetune.version import PACKAGE_FOLDER


@pytest.mark.parametrize("given", [None, "auto", "10.0.0.1:6379", "ray://head:10001"])
def test_the_address_is_as_given_or_of_the_environment(given: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert cluster_address(given) == given
    monkeypatch.setenv("RAY_ADDRESS", "there:6379")
    assert cluster_address(given) == (given or "there:6379")
    assert cluster_address("local") is None
    monkeypatch.setenv("RAY_ADDRESS", "local")
    assert cluster_address(given) == given


@pytest.mark.parametrize(("home", "relative"), [("here", True), ("s3://bucket/prefix", False)])
def test_relative_folders_lead_to_the_same_place_for_workers_that_stand_elsewhere(
    home: str, relative: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "of a worker").mkdir()
    monkeypatch.chdir(tmp_path)
    for name, folder in (("VSETUNE_HOME", home), ("VSETUNE_NODE_FOLDER", "node"), ("VSETUNE_NODE_CACHE", "kept")):
        monkeypatch.setenv(name, folder)
    before = paths.home(), node_cache().folder, paths.remote_home()
    paths.make_folders_absolute()
    monkeypatch.chdir(tmp_path / "of a worker")
    assert (paths.home(), node_cache().folder, paths.remote_home()) == before
    assert paths.home() == tmp_path / ("here" if relative else "node")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_address_of_a_dashboard_which_jobs_take_is_refused_in_one_line(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dashboard = f"{scheme}://me:hunter2@127.0.0.1:8265"
    with refused("VSE-S035", where="--address") as caught:
        cluster_address(dashboard)
    assert "hunter2" not in str(caught.value)
    monkeypatch.setenv("RAY_ADDRESS", dashboard)
    with refused("VSE-S035", where="RAY_ADDRESS"):
        cluster_address(None)


@pytest.mark.parametrize("address", ["127.0.0.1:9", "[::1]:9", "ray://127.0.0.1:9"])
def test_a_cluster_where_nothing_listens_is_refused_at_once_which_takes_ray_a_quarter_of_an_hour(address: str) -> None:
    begun = time.monotonic()
    with refused("VSE-S037", address=address), ray_cluster(address, StopRequest(), farewell=""):
        pass
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("address", ["head", "head:port", "[::1:9"])
def test_what_can_be_no_address_is_one_line(address: str) -> None:
    with (
        refused("VSE-S037", address=address) as caught, ray_cluster(address, StopRequest(), farewell=""),
    ):
        pass
    assert "\n" not in str(caught.value)


def test_a_ray_that_does_not_start_is_one_line_and_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when its GCS dies meanwhile: Ray waits for half a minute, and an agent whose raylet has gone stays."""
    agent = tmp_path / "agent"

    def starting(**_: Any) -> None:
        subprocess.run(["sh", "-c", f"sleep 300 & echo $! > {agent}; sleep 2"], check=True)
        raise Exception("The current node timed out during startup. This could happen because ...")

    monkeypatch.setattr(ray, "init", starting)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with refused("VSE-S036") as caught, ray_cluster(None, StopRequest(), farewell=""):
        pass
    assert "The current node timed out" in str(caught.value)
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int(agent.read_text())).wait(10)


def test_sigterm_while_ray_starts_interrupts_the_study_though_ray_has_set_its_own_handler(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's handler raises SystemExit with the number of the signal."""
    def starting(**_: Any) -> None:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(number))
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5.0)

    monkeypatch.setattr(ray, "init", starting)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(KeyboardInterrupt), ray_cluster(None, StopRequest(), farewell=""):
        pass


STARTING = (
    "import sys\n"
    "from vsetune.study import cluster\n"
    "from vsetune.study.stopping import StopRequest\n"
    "cluster.SILENT_FOR_S = 1.0\n"
    "with cluster.ray_cluster(sys.argv[1] or None, StopRequest(), farewell='go on with --resume'):\n"
    "    print('connected')\n"
)


def started(address: str) -> subprocess.Popen[str]:
    """A process that connects to Ray and prints."""
    return subprocess.Popen(
        [sys.executable, "-c", STARTING, address], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(PACKAGE_FOLDER.parent)},
    )


def test_a_driver_whose_gcs_dies_while_ray_starts_ends_in_one_line_and_leaves_no_process() -> None:
    """Ray waits for a minute for it, in code that no signal reaches, and then ends the process without a line."""
    driver = started("")
    ray_parts: list[psutil.Process] = []
    while len(ray_parts) < 2:  # the GCS, and the first process that Ray starts once the GCS runs
        assert driver.poll() is None
        ray_parts = psutil.Process(driver.pid).children(recursive=True)
        time.sleep(0.02)
    next(part for part in ray_parts if part.name() == "gcs_server").kill()
    killed = time.monotonic()
    output, errors = driver.communicate(timeout=60)
    assert time.monotonic() - killed < 20
    assert (driver.returncode, output) == (130, "")
    last = errors.strip().splitlines()[-1]
    assert last == "interrupted by the death of Ray (the GCS died); go on with --resume"
    assert psutil.wait_procs(ray_parts, timeout=15)[1] == []


def test_a_driver_whose_head_dies_while_it_connects_ends_in_one_line() -> None:
    """Ray tries for a quarter of an hour."""
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        driver = started(address)
        connection, _ = head.accept()
        connection.close()
        connection, _ = head.accept()  # Ray's own
    connection.close()
    output, errors = driver.communicate(timeout=60)
    assert (driver.returncode, output) == (130, "")
    last = errors.strip().splitlines()[-1]
    assert last == f"interrupted by the death of Ray (the GCS at {address} is gone); go on with --resume"


def test_a_ray_starts_where_the_home_folder_cannot_hold_its_token(tmp_path: Path) -> None:
    script = (
        "from vsetune.study.cluster import ray, ray_cluster\n"
        "from vsetune.study.stopping import StopRequest\n"
        "with ray_cluster(None, StopRequest(), farewell=''):\n"
        "    print(ray.get(ray.remote(lambda: 'ran').remote()))\n"
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=200, check=False, cwd=tmp_path,
        env={**kept, "HOME": "/dev/null", "PYTHONPATH": str(PACKAGE_FOLDER.parent)},
    )
    assert (done.returncode, done.stdout.strip()) == (0, "ran"), done.stderr


ROOT = Path(__file__).parents[2]
STARTED = """
import json, os, sys
import psutil, ray
from vsetune.study.cluster import ray_cluster
from vsetune.study.stopping import StopRequest

@ray.remote
def path_of_worker():
    import statistics  # of Python: the one beside the study raises
    return sys.path, ray.cluster_resources()["CPU"]

with ray_cluster(sys.argv[1] or None, StopRequest(), farewell=""):
    path, cpus = ray.get(path_of_worker.remote())  # a worker listens as well
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    listening = [
        (process.name(), each.laddr.ip) for process in processes for each in process.net_connections(kind="inet")
        if each.status == "LISTEN"
    ]
print(json.dumps([os.getcwd(), path, cpus, listening]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("address", "environment"), [(None, {}), ("local", {}), (None, {"RAY_ADDRESS": "local"})])
def test_a_ray_that_is_started_for_a_study_listens_to_this_machine_alone_and_imports_nothing_of_the_users_folder(
    address: str | None, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("a" * 48)
    (tmp_path / "statistics.py").write_text("raise RuntimeError('a module of the user')\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    with short_folder() as folder:
        done = subprocess.run(
            [sys.executable, "-P", "-c", STARTED, address or ""], capture_output=True, text=True, timeout=200,
            check=False, cwd=tmp_path, env=kept | environment | {
                "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": "token", "RAY_TMPDIR": str(folder),
                "PYTHONPATH": str(ROOT / "platform"),
            },
        )
    assert done.returncode == 0, done.stderr
    cwd, path, cpus, listening = json.loads(done.stdout.splitlines()[-1])
    assert (cwd, cpus) == (str(tmp_path), own_cpus())
    assert cwd not in path
    assert {"gcs_server", "raylet"} <= {name for name, _ in listening}
    assert [each for each in listening if each[1].removeprefix("::ffff:") not in ("127.0.0.1", "::1")] == []


@pytest.mark.parametrize(("python", "environment"), [
    (["-m", "vsetune.cli.entry"], {}),  # puts the working directory first
    (["-P", "-c", "from vsetune.cli.entry import run; run()"], {"RAY_JOB_CONFIG_JSON_ENV_VAR": "{}"}),
    (["-P", "-c", "from vsetune.cli.entry import run; run()"], {"RAY_JOB_ID": "01000000"}),
], ids=["python -m", "job of Ray", "worker of Ray"])
def test_a_module_of_pythons_name_in_the_working_directory_is_not_imported(
    python: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    """Ray puts the working directory of a job on PYTHONPATH, before Python's own modules."""
    for name in ("statistics", "typing", "csv", "yaml", "torch"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('a module of the user')\n")
    own = [str(tmp_path)] if environment else []
    done = subprocess.run(
        [sys.executable, *python, "study", "--help"], capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join([*own, str(ROOT / "platform")])},
    )
    assert done.returncode == 0, done.stderr


def test_a_folder_too_long_for_rays_sockets_is_named_with_the_mend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("long" * 20)
    folder.mkdir()
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(folder))
    with pytest.raises(UsageError) as caught, ray_cluster("local", StopRequest(), farewell=""):
        pass
    assert caught.value.problem.code == "VSE-S520"
    assert str(caught.value).startswith(f"RAY_TMPDIR: {folder} is too long for the sockets that Ray makes below it")
