"""A study whose process is killed with SIGKILL and resumed ends with exactly what was promised."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from rich.console import Console
from trials_here import without_ray

from chaos.logged import export_problems, read_log, twice
from vsetune.board.building import build
from vsetune.errors import StudyConflict
from vsetune.records.studies import Studies
from vsetune.study.preparation import prepare_study
from vsetune.study.run import StudyOutcome, run_study

pytestmark = pytest.mark.filterwarnings("default")  # Ray and MLflow warn about themselves

PROMISED = {f"vsepp.{loss}-c{number:03d}-s0" for loss in ("lmh", "lseh") for number in range(2)}


@pytest.fixture
def study_file(tmp_path: Path) -> Path:
    path = tmp_path / "killed.yaml"
    path.write_text(yaml.safe_dump({
        "study": "killed",
        "data": {"path": "data/scenes", "scenes": {"train": 200, "validation": 40, "test": 8}},
        "networks": [{"name": "vsepp", "fixed": {"embedding_size": 64, "word_size": 32}}],
        "losses": [{"name": "lmh"}, {"name": "lseh"}],
        "training": {"epochs": 2, "batch_size": 50, "validate_every_steps": 10, "learning_rate": 1e-3},
        "search": {"configurations": 2}, "scheduler": {"kind": "none"}, "resources": {"concurrent_trials": 1},
    }))
    return path


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "vsetune.cli.main", *words]


def environment() -> dict[str, str]:
    platform_root = str(Path(__file__).parents[2] / "platform")
    return os.environ | {"PYTHONPATH": platform_root, "OMP_NUM_THREADS": "1"}


def run(study_file: Path, *, resume: bool) -> StudyOutcome:
    """In this process, without Ray."""
    quiet = Console(quiet=True)
    return run_study(prepare_study(study_file, quiet), resume=resume, retry_failed=False, address=None, console=quiet)


def ended_in_log(home: Path) -> int:
    """Trials that the log holds as ended, read beside the running study."""
    logged = read_log(home / "runs" / "killed")
    return sum(attempt.ends for attempt in logged.attempts.values())


def test_a_killed_study_resumes_to_exactly_the_promised_trials(
    study_file: Path, mlflow_here: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Path(os.environ["VSETUNE_HOME"])
    process = subprocess.Popen(
        command("study", "run", str(study_file)), env=environment(), start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )
    deadline = time.monotonic() + 200
    while ended_in_log(home) < 1:
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        assert time.monotonic() < deadline, "no trial finished in time"
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    before = ended_in_log(home)
    assert before < len(PROMISED), "the study was over before it could be killed"

    without_ray(monkeypatch)
    with pytest.raises(StudyConflict):
        run(study_file, resume=False)
    assert run(study_file, resume=True).ending == "finished"
    board = build(Studies().attempts("killed"), baseline="lmh")
    assert {row.loss: row.trials for row in board.rows} == {"lmh": 2, "lseh": 2}
    assert all(row.counts["finished"] == 2 for row in board.rows)
    assert ended_in_log(home) == len(PROMISED)
    logged = read_log(home / "runs" / "killed")
    assert logged.problems + twice(logged) + export_problems(mlflow_here, "killed", logged) == []
    for row in board.rows:
        for seed in row.seeds:
            epochs = [epoch for epoch, _ in seed.curve]
            assert epochs == sorted(set(epochs))
            assert epochs[-1] == 2.0
