"""A study with its home on a real S3 server goes on from another machine with an empty disk, as if nothing had been."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from real_servers import s3_server
from short_folders import place

from chaos.logged import read_log, twice

__all__ = ["place"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
PLATFORM = Path(__file__).parents[2] / "platform"
STUDY = {
    "study": "moved",
    "data": {"path": "data/scenes", "scenes": {"train": 200, "validation": 40, "test": 8}},
    "networks": [{"name": "vsepp", "fixed": {"embedding_size": 64, "word_size": 32}}],
    "losses": [{"name": "lmh"}, {"name": "lseh"}],
    "training": {"epochs": 6, "batch_size": 50, "validate_every_steps": 5, "learning_rate": 1e-3},
    "search": {"configurations": 2, "sampler": "random"}, "scheduler": {"kind": "none"}, "seeds": list(range(8)),
}
TRIALS = 18


class Machine:
    """Where commands run. variables: of the environment, beside those of this process."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder, self._variables = folder, variables
        folder.mkdir()

    def command(self, *words: str | Path) -> dict[str, Any]:
        elsewhere = ("MLFLOW_TRACKING_URI", "RAY_ADDRESS", "VSETUNE_HOME")
        environment = {name: value for name, value in os.environ.items() if name not in elsewhere} | {
            "PYTHONPATH": os.pathsep.join([str(PLATFORM), os.environ.get("PYTHONPATH", "")]), "OMP_NUM_THREADS": "1",
            "COLUMNS": "200", "RAY_TMPDIR": str(self.folder), "VSETUNE_LOG": "INFO",
        } | self._variables
        return {"args": [sys.executable, "-m", "vsetune.cli.main", *map(str, words)], "env": environment,
                "cwd": self.folder, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}

    def run(self, *words: str | Path, code: int = 0, shown: str = "stdout") -> str:
        done = subprocess.run(**self.command(*words), timeout=600)
        assert done.returncode == code, done.stderr
        return str(getattr(done, shown))


def results(board: str) -> dict[str, Any]:
    """Of a leaderboard as JSON what does not depend on time."""
    rows = json.loads(board)["rows"]
    return {row["loss"]: [(seed["seed"], seed["curve"]) for seed in row["seeds"]] for row in rows}


def test_a_study_killed_on_one_machine_ends_on_another_as_if_undisturbed(place: Path) -> None:
    file = place / "moved.yaml"
    file.write_text(yaml.safe_dump(STUDY))
    alone = Machine(place / "alone", VSETUNE_HOME=str(place / "alone" / "home"))
    alone.run("study", "run", file)
    expected = results(alone.run("leaderboard", "show", "moved", "--json"))

    with s3_server(place) as s3:
        common = s3 | {"VSETUNE_HOME": "s3://home/study"}
        first, second, third = (
            Machine(place / name, VSETUNE_NODE_FOLDER=str(place / name / "node"), **common) for name in "abc"
        )
        client = boto3.Session().client(
            "s3", endpoint_url=s3["AWS_ENDPOINT_URL"], region_name=s3["AWS_DEFAULT_REGION"],
            aws_access_key_id=s3["AWS_ACCESS_KEY_ID"], aws_secret_access_key=s3["AWS_SECRET_ACCESS_KEY"],
        )
        driver = subprocess.Popen(**first.command("study", "run", file), start_new_session=True)
        deadline = time.monotonic() + 300
        while sum(is_ended for is_ended in trials_on(client).values()) < 2 or all(trials_on(client).values()):
            assert driver.poll() is None, driver.communicate()[1]
            assert time.monotonic() < deadline, "no two trials ended in time"
            time.sleep(0.2)
        told = second.run("study", "run", file, "--resume", code=2, shown="stderr")
        assert "study moved: runs on " in told
        assert "last heartbeat" in told
        os.kill(driver.pid, signal.SIGKILL)
        driver.communicate()
        assert not all(trials_on(client).values()), "the study was over before it could be killed"
        shutil.rmtree(place / "a")

        resumed = second.run("study", "run", file, "--resume", shown="stderr")
        assert results(second.run("leaderboard", "show", "moved", "--json")) == expected
        assert trials_on(client) == dict.fromkeys(trials_on(client), True), resumed
        assert len(trials_on(client)) == TRIALS
        third.run("trial", "gallery", "moved/vsepp.lmh-c000-s0", "--captions", "2", "--images", "2", "--device", "cpu")
        keys = {each["Key"] for each in client.list_objects_v2(Bucket="home", Prefix="study/")["Contents"]}
        assert "study/data/scenes/manifest.json" in keys
        assert any(key.startswith("study/galleries/moved/") for key in keys)
        assert any(key.startswith("study/runs/moved/log/") for key in keys)
        assert any(key.startswith("study/cache/semantics-train-") for key in keys)
        assert not any("probe" in key for key in keys)
        logged = read_log(place / "c" / "node" / "runs" / "moved")
        assert logged.problems + twice(logged) == []
    assert not (place / "b" / "node" / "mlflow.db").exists()


def trials_on(client: Any) -> dict[str, bool]:
    """The trials under the home, and whether each has ended: then it has its best weights and no checkpoint."""
    found: dict[str, set[str]] = {}
    pages = client.get_paginator("list_objects_v2").paginate(Bucket="home", Prefix="study/runs/moved/trials/")
    for key in (each["Key"] for page in pages for each in page.get("Contents", ())):
        found.setdefault(key.split("/")[-2], set()).add(key.split("/")[-1])
    return {trial: "best.safetensors" in files and "checkpoint.pt" not in files for trial, files in found.items()}
