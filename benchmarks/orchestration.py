"""What orchestration costs: 24 trials of about ten seconds on two cores, training time against wall time.

    python benchmarks/orchestration.py [TRIALS] [SECONDS]

Everything is on the clock: starting Ray and its actors, searching, recording in MLflow, pictures, checkpoints, the
leaderboard. Training time is what the trials report as time in training steps and validation, loading included. Two and
a half minutes on two idle cores; expect an efficiency of at least 0.85.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import yaml
from rich.console import Console

CELLS = 2


def main(trials: int, seconds: float) -> None:
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory() as home:
        os.environ["VSETUNE_HOME"] = home
        epochs = calibrate(Path(home), seconds, console)
        path = write_study(Path(home), "orchestration", epochs, trials // CELLS)
        begin = time.perf_counter()
        summaries = run(path, console)
        wall = time.perf_counter() - begin
    training = sum(
        each["train_seconds"] + each["load_seconds"] + each["validation_seconds"] for each in summaries
    )
    device = sum(each["device_seconds"] for each in summaries)
    print(f"{len(summaries)} trials, {training / len(summaries):.1f} s each; wall time {wall:.1f} s on two cores")
    print(f"device time of the trials, checkpoints included: {device:.1f} s")
    print(f"efficiency, training time / (2 x wall time): {training / (2 * wall):.3f}")


def calibrate(home: Path, seconds: float, console: Console) -> float:
    """Epochs that take `seconds` with one thread while the other core is busy with the same."""
    path = write_study(home, "calibration", 2.0, 1)
    summaries = run(path, console)
    per_epoch = sum(each["device_seconds"] for each in summaries) / sum(each["epochs"] for each in summaries)
    return round(seconds / per_epoch, 1)


def write_study(home: Path, name: str, epochs: float, configurations: int) -> Path:
    path = home / f"{name}.yaml"
    path.write_text(yaml.safe_dump({
        "study": name,
        "data": {"path": "data/scenes", "scenes": {"train": 400, "validation": 100, "test": 4}, "test_split": None},
        "networks": [{"name": "vsepp", "fixed": {"embedding_size": 256, "word_size": 100}}],
        "losses": [{"name": "lmh"}, {"name": "lseh"}],
        "training": {"epochs": epochs, "batch_size": 64, "learning_rate": 1e-3},
        "search": {"configurations": configurations}, "scheduler": {"kind": "none"},
    }))
    return path


def run(path: Path, console: Console) -> list[dict[str, float]]:
    from vsetune.jobs.preparation import prepare_study, tracking_store
    from vsetune.jobs.run import run_study

    prepared = prepare_study(path, console)
    run_study(prepared, resume=False, retry_failed=False, address=None, console=console)
    attempts = tracking_store(prepared.spec.tracking).attempts(prepared.spec.study)
    assert all(each.status == "finished" for each in attempts)
    return [dict(each.summary) for each in attempts]


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 24, float(sys.argv[2]) if len(sys.argv) > 2 else 10.0)
