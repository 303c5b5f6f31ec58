"""A study runs and MLflow gets its series with the oldest and the newest Ray, MLflow and Optuna that are allowed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIBRARIES = ("ray", "mlflow", "optuna")
STUDY = """\
study: versions
data: {path: data/versions, scenes: {train: 200, validation: 100, test: 100}}
networks: [{name: vsepp, fixed: {embedding_size: 32}}]
losses: [{name: lmh, fixed: {warmup_epochs: 1}}, {name: lseh, fixed: {warmup_epochs: 1}}]
baseline: lmh
training: {epochs: 2, batch_size: 32}
search: {configurations: 2}
seeds: [0, 1]
"""
SERIES = """\
import json, sys
from mlflow import MlflowClient
client = MlflowClient(sys.argv[1])
experiment = client.get_experiment_by_name("versions")
runs = client.search_runs([experiment.experiment_id], "tags.`vsetune.kind` = 'attempt'")
names = ("m_recall", "train_loss", "t2i_r1", "learning_rate")
print(json.dumps([[len(client.get_metric_history(run.info.run_id, name)) for name in names] for run in runs]))
"""


def oldest() -> list[str]:
    """The lower bounds of pyproject.toml, as exact requirements."""
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    found = [re.fullmatch(rf"({'|'.join(LIBRARIES)})(\[\w+\])?>=([\d.]+),<\d+", each) for each in required]
    return [f"{match[1]}=={match[3]}" for match in found if match is not None]


def installed(folder: Path, *pins: str) -> Path:
    """The programs of a new environment: with these versions, the newest of other LIBRARIES, the rest as tested."""
    pinned = [
        line for line in (ROOT / "constraints.txt").read_text().splitlines()
        if not re.match(rf"({'|'.join(LIBRARIES)})\b", line)
    ]
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(pinned))
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    programs = folder / "venv" / "bin"
    subprocess.run(
        [programs / "pip", "install", "-q", "--upgrade", "-c", constraints, *pins, ROOT, "pytest", "pytest-timeout"],
        check=True,
    )
    return programs


@pytest.mark.slow
@pytest.mark.parametrize("pins", [oldest(), []], ids=["oldest", "newest"])
def test_a_study_and_its_export_work_with_the_ends_of_the_ranges(pins: list[str], tmp_path: Path) -> None:
    programs = installed(tmp_path, *pins)
    others = ("PYTHONPATH", "MLFLOW_TRACKING_URI")
    environment = {name: value for name, value in os.environ.items() if name not in others}
    environment |= {"VSETUNE_HOME": str(tmp_path / "home"), "PATH": f"{programs}:{environment['PATH']}"}
    (tmp_path / "study.yaml").write_text(STUDY)

    def output(*command: str | Path) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900, check=False
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    output(programs / "vsetune", "study", "run", "study.yaml")
    series = json.loads(output(programs / "python", "-c", SERIES, f"sqlite:///{tmp_path / 'home' / 'mlflow.db'}"))
    assert series == [[2, 2, 2, 2]] * 6
    output(programs / "python", "-m", "pytest", "-q", "-m", "slow", ROOT / "tests" / "study" / "test_cluster.py")


def test_the_lower_bounds_are_found() -> None:
    assert [pin.partition("==")[0] for pin in oldest()] == list(LIBRARIES)
