"""`vsetune job` and `vsetune study` against a head node: submitted, listed, submitted again, stopped, gone on with."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from forward_proxy import forward_proxy
from ray_heads import environment_of, running_head

ROOT = Path(__file__).parents[2]
PORT, DASHBOARD_PORT = 23479, 23465

pytestmark = pytest.mark.slow


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    environment = environment_of(tmp_path, dashboard_port=DASHBOARD_PORT)
    with running_head(environment, PORT, DASHBOARD_PORT, "--num-cpus=2", "--dashboard-host=127.0.0.1"):
        yield environment | {"PYTHONPATH": str(ROOT / "platform"), "COLUMNS": "200"}


def vsetune(environment: dict[str, str], *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vsetune.cli.entry", *words], env=environment, cwd=folder, capture_output=True,
        text=True, timeout=900, check=False,
    )


def submitted(environment: dict[str, str], study: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Repeats what a head node that has just started refuses."""
    deadline = time.monotonic() + 120
    while True:
        done = vsetune(environment, "job", "submit", str(study), *options, folder=study.parent)
        starting = any(words in done.stderr for words in ("takes no jobs yet", "nothing answers", "does not answer"))
        if not starting or time.monotonic() > deadline:
            return done
        time.sleep(2)


def study_file(folder: Path, *, epochs: int = 40, **changes: Any) -> Path:
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({
        "study": "mine", "data": {"path": "data/scenes", "scenes": {"train": 48, "validation": 16, "test": 16}},
        "networks": [{"name": "vsepp", "fixed": {"embedding_size": 16, "word_size": 8}}],
        "losses": [{"name": "lmh"}], "search": {"configurations": 3}, "scheduler": {"kind": "none"},
        "training": {"epochs": epochs, "batch_size": 40, "learning_rate": 1e-3, "validate_every_steps": 3}, **changes,
    }))
    return path


def test_a_study_outside_the_repository_is_run_watched_stopped_and_gone_on_with(
    environment: dict[str, str], tmp_path: Path
) -> None:
    study = study_file(tmp_path)
    first = submitted(environment, study, "--no-wait")
    assert first.returncode == 0, first.stderr
    assert "job mine-1: submitted to" in first.stderr
    assert "not passed on, the nodes have theirs: VSETUNE_HOME" in first.stderr

    again = submitted(environment, study, "--no-wait")
    assert again.returncode == 0, again.stderr
    assert "job mine-1: study mine runs already" in again.stderr

    (job,) = json.loads(vsetune(environment, "job", "list", "--json", folder=tmp_path).stdout)
    assert (job["job"], job["study"]) == ("mine-1", "mine")
    wait_for_a_validation(environment, tmp_path)

    stopped = vsetune(environment, "job", "stop", "mine", folder=tmp_path)
    assert stopped.returncode == 0, stopped.stderr
    assert "job mine-1: stopped" in stopped.stderr
    seen = json.loads(vsetune(environment, "study", "show", "mine", "--json", folder=tmp_path).stdout)
    assert seen["status"] == "killed"
    assert any(trial["epoch"] > 0 for trial in seen["each"])

    end = submitted(environment, study)
    assert end.returncode == 0, end.stdout + end.stderr
    assert "job mine-2: submitted to" in end.stderr
    assert "mine: 3 finished" in end.stdout
    assert end.stderr.rstrip().endswith("job mine-2: succeeded")
    log = vsetune(environment, "job", "logs", "mine-2", folder=tmp_path)
    assert "mine: 3 finished" in log.stdout
    dashboard = f"127.0.0.1:{DASHBOARD_PORT}"
    with forward_proxy({dashboard: dashboard}) as (proxy, asked):
        through = environment | {"http_proxy": proxy, "no_proxy": "", "NO_PROXY": ""}
        attached = vsetune(through, "job", "attach", "mine-2", folder=tmp_path)
    assert attached.returncode == 0, attached.stdout + attached.stderr
    assert "mine: 3 finished" in attached.stdout
    assert f"GET {dashboard}" in asked


def test_a_job_is_stopped_through_the_store_and_leaves_with_its_exit_code(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """`study stop` knows nothing of the cluster; the driver ends as on Ctrl-C, so the job fails with 130."""
    assert submitted(environment, study_file(tmp_path, epochs=4000), "--no-wait").returncode == 0
    wait_for_a_validation(environment, tmp_path)
    stopped = vsetune(environment, "study", "stop", "mine", folder=tmp_path)
    assert stopped.returncode == 0, stopped.stderr
    attached = vsetune(environment, "job", "attach", "mine", folder=tmp_path)
    assert attached.returncode == 130, attached.stdout + attached.stderr
    assert "interrupted by a request in its folder" in attached.stdout


def test_what_a_job_cannot_use_is_its_exit_code_and_two_who_submit_at_once_start_one(
    environment: dict[str, str], tmp_path: Path
) -> None:
    done = submitted(environment, study_file(tmp_path, data={"path": "data/nothing"}))
    assert done.returncode == 2, done.stdout + done.stderr
    assert "data/nothing" in done.stdout

    study = study_file(tmp_path)
    with ThreadPoolExecutor() as pool:
        both = [pool.submit(submitted, environment, study, "--no-wait") for _ in range(2)]
        said = [each.result().stderr for each in both]
    assert sum("job mine-2: submitted to" in each for each in said) == 1, said
    assert sum("job mine-2: study mine runs already" in each for each in said) == 1, said


def wait_for_a_validation(environment: dict[str, str], folder: Path) -> None:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        seen = vsetune(environment, "study", "show", "mine", "--json", folder=folder)
        if seen.returncode == 0 and any(trial["epoch"] > 0 for trial in json.loads(seen.stdout)["each"]):
            return
        time.sleep(1)
    raise AssertionError(f"no validation within three minutes: {seen.stdout}{seen.stderr}")
