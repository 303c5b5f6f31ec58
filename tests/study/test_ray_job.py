"""`ray job submit` against a head node with token authentication runs a study to its leaderboard."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml
from plugin_folders import write_loss
from ray_heads import environment_of, ray_command, running_head

from vsetune.config.plugins import forget_plugins, load_plugin
from vsetune.study.kept_plugins import keep_plugins

ROOT = Path(__file__).parents[2]
VSETUNE = Path(sys.executable).with_name("vsetune")
PORT, DASHBOARD_PORT = 26379, 28265

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster_environment(tmp_path: Path) -> dict[str, str]:
    return environment_of(tmp_path, dashboard_port=DASHBOARD_PORT)


@pytest.fixture
def head(cluster_environment: dict[str, str]) -> Iterator[None]:
    with running_head(cluster_environment, PORT, DASHBOARD_PORT, "--num-cpus=2"):
        yield


SWEEP = ("jobs/sweep.py",)


def submit(
    environment: dict[str, str], study: str, *, folder: Path = ROOT, command: Sequence[str] = SWEEP
) -> subprocess.CompletedProcess[str]:
    """Submits and waits for the end; a head node that has just started has no agent for jobs yet."""
    deadline = time.monotonic() + 120
    while True:
        done = subprocess.run(
            [ray_command(), "job", "submit", "--working-dir", ".", "--", sys.executable, *command, study],
            env=environment, cwd=folder, capture_output=True, text=True, timeout=900,
        )
        starting = any(words in done.stderr for words in ("No available agent", "Failed to connect"))
        if not starting or time.monotonic() > deadline:
            return done
        time.sleep(2)


def test_a_submitted_study_reaches_its_leaderboard(
    head: None, cluster_environment: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "submitted.yaml"
    path.write_text(yaml.safe_dump({
        "study": "submitted",
        "data": {"path": "data/scenes", "scenes": {"train": 48, "validation": 16, "test": 16}},
        "networks": [{"name": "vsepp", "fixed": {"embedding_size": 16, "word_size": 8}}],
        "losses": [{"name": "lmh"}, {"name": "lseh"}],
        "training": {"epochs": 2, "batch_size": 40, "learning_rate": 1e-3}, "search": {"configurations": 1},
    }))
    done = submit(cluster_environment, str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 finished" in done.stdout + done.stderr
    assert (tmp_path / "home" / "runs" / "submitted" / "leaderboard.html").exists()

    again = submit(cluster_environment, str(path))
    assert again.returncode == 0, again.stdout + again.stderr


def test_a_module_of_pythons_name_beside_a_submitted_study_is_not_imported(
    cluster_environment: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "sent"
    folder.mkdir()
    (folder / "statistics.py").write_text("raise RuntimeError('a module of the user')\n")
    (folder / "one.yaml").write_text(yaml.safe_dump({
        "study": "one", "data": {"path": "data/scenes", "scenes": {"train": 48, "validation": 16, "test": 16}},
        "networks": [{"name": "vsepp", "fixed": {"embedding_size": 16, "word_size": 8}}], "losses": [{"name": "lmh"}],
        "training": {"epochs": 1, "batch_size": 40, "learning_rate": 1e-3}, "search": {"configurations": 1},
    }))
    installed = cluster_environment | {"PYTHONPATH": str(ROOT / "platform")}
    with running_head(installed, PORT, DASHBOARD_PORT, "--num-cpus=2"):
        done = submit(installed, "one.yaml", folder=folder, command=["-P", str(VSETUNE), "study", "run"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 finished" in done.stdout + done.stderr


def test_a_client_without_the_token_is_refused(head: None, cluster_environment: dict[str, str], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("b" * 48)
    done = submit(cluster_environment | {"RAY_AUTH_TOKEN_PATH": str(wrong)}, "studies/quickstart.yaml")
    assert done.returncode != 0
    assert "submitted successfully" not in done.stdout


TRAVEL = """
import sys
from pathlib import Path

import ray

from vsetune.study.cluster import ray_cluster
from vsetune.study.stopping import StopRequest


@ray.remote
def module_of(wanted):
    from vsetune.study.kept_plugins import load_kept
    from vsetune.losses.loss_building import build_loss
    from vsetune.config.component_specs import LOSSES

    load_kept(wanted, Path("/no/such/study"), where="task")
    return type(build_loss(LOSSES["half_hinge"]())).__module__


address, copy, sha256 = sys.argv[1:]
with ray_cluster(address, StopRequest(), farewell="", modules=[Path(copy)]):
    print(ray.get(module_of.remote({"loss.half_hinge": sha256})))
"""


def test_plugins_travel_to_nodes_that_see_no_folder_of_the_study(
    head: None, cluster_environment: dict[str, str], tmp_path: Path
) -> None:
    """The copy goes with Ray's runtime environment; the worker finds it by its hash, wherever Ray unpacked it."""
    write_loss(tmp_path / "half_hinge")
    (plugin,) = load_plugin("half_hinge", base=tmp_path)
    (copy,) = keep_plugins([plugin], tmp_path / "study")
    forget_plugins()
    deadline = time.monotonic() + 120
    while True:
        done = subprocess.run(
            [sys.executable, "-c", TRAVEL, f"127.0.0.1:{PORT}", str(copy), plugin.sha256],
            env=cluster_environment | {"PYTHONPATH": str(ROOT / "platform")}, cwd=tmp_path, capture_output=True,
            text=True, timeout=600,
        )
        if "cannot reach" not in done.stderr or time.monotonic() > deadline:
            break
        time.sleep(2)
    assert done.stdout.strip() == f"vsetune_plugins.half_hinge_{plugin.sha256[:12]}.loss", done.stderr
