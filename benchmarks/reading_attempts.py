"""How long the board of a large study takes, and how much memory: first, again, and after one more validation.

    PYTHONPATH=platform python benchmarks/reading_attempts.py [--attempts 10000] [--points 50]

Writes the log of such a study with numbers that do not repeat, then builds its board in processes of their own. First:
no snapshot is there. Again: another process, with the snapshot that the first one left. Refreshed: the same process,
once an attempt has another validation. Seconds by the clock and, in brackets, of the processor, which other work on the
machine moves less. Memory is the most that each process has had, all that it imports included. Takes minutes. Expect,
with 10,000 attempts of 50 points, a first board in 6 s, one again in 1 s, at most 500 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

from vsetune.board.building import build
from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import Cell, build_trial, resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.records.events import AttemptStart, StudyRecord, ValidationPoint
from vsetune.records.log import LogWriter
from vsetune.records.studies import Studies, folder_of_study
from vsetune.records.writer import StudyWriter

PLAIN = {
    "study": "reading", "data": {"path": "none"}, "networks": [{"name": "vsepp"}], "baseline": "lmh",
    "losses": [{"name": "lseh"}, {"name": "lmh"}], "training": {"epochs": 50},
    "search": {"training": {"learning_rate": "default"}, "sampler": "random", "configurations": 6000},
}
SUMMARY = {"best_m_recall": 30.0, "train_seconds": 100.0, "device_seconds": 120.0, "epochs": 5.0, "epochs_to_best": 5.0}
TIMES = ("load_seconds", "validation_seconds", "device_seconds", "pairs_per_second", "i2t_mean", "t2i_mean", "rsum")
RECALLS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, default=10_000)
    parser.add_argument("--points", type=int, default=50)
    parser.add_argument("--read", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        print(json.dumps(measured(arguments.points)))
        return
    with tempfile.TemporaryDirectory() as home:
        os.environ["VSETUNE_HOME"] = home
        size = written(arguments.attempts, arguments.points)
        print(f"{arguments.attempts} attempts of {arguments.points} points: a log of {size / 1e6:.0f} MB")
        told: dict[str, dict[str, Any]] = {}
        for turn in ("first", "again"):
            done = subprocess.run(
                [sys.executable, __file__, "--read", "--points", str(arguments.points)], check=True,
                capture_output=True, text=True,
            )
            told[turn] = json.loads(done.stdout.splitlines()[-1])
            shown(turn, told[turn])
    ratio = told["first"]["board"][1] / told["again"]["board"][1]
    print(f"first / again, of the processor: {ratio:.1f}")


def shown(turn: str, told: dict[str, Any]) -> None:
    parts = [f"{name} {told[name][0]:.2f} s ({told[name][1]:.2f})" for name in ("board", "reading", "refreshed")]
    print(f"{turn}: {', '.join(parts)}, {told['peak_mb']:.0f} MB", flush=True)


def written(attempts: int, points: int) -> int:
    """Bytes of the log. Not made durable event by event, which would take minutes and changes nothing in the file."""
    log = LogWriter(folder_of_study("reading"))
    sync, os.fsync = os.fsync, lambda descriptor: None
    writer = StudyWriter(log)
    writer.open_study(StudyRecord("reading", "f00d", PLAIN), resume=False)
    for number, start in enumerate(starts(attempts)):
        name = writer.start_attempt(start)
        for step in range(1, points + 1):
            writer.record_points(name, [noisy(step, number)])
        writer.finish_attempt(name, "finished", summary=SUMMARY, error=None)
    log.close()
    os.fsync = sync
    return log.path.stat().st_size


def measured(points: int) -> dict[str, Any]:
    """Seconds of the board, of reading alone and of the next board, and the most memory that this process has had."""
    studies, begin = Studies(), now()
    attempts = studies.attempts("reading")
    reading = since(begin)
    assert build(attempts, baseline="lmh").rows
    board = since(begin)
    changed = attempts[0].attempt_id
    del attempts
    command = [sys.executable, "-c", f"import reading_attempts; reading_attempts.go_on({changed!r}, {points})"]
    subprocess.run(command, check=True, cwd=Path(__file__).parent)
    begin = now()
    assert build(studies.attempts("reading"), baseline="lmh").rows
    refreshed = since(begin)
    status = Path("/proc/self/status").read_text()  # `getrusage` counts what the parent had, too
    peak_kb = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
    return {"reading": reading, "board": board, "refreshed": refreshed, "peak_mb": peak_kb / 1000}


def now() -> tuple[float, float]:
    """By the clock, and of the processor."""
    return time.perf_counter(), time.process_time()


def since(begin: tuple[float, float]) -> list[float]:
    return [end - start for start, end in zip(begin, now(), strict=True)]


def go_on(attempt: str, points: int) -> None:
    """Another validation of an attempt, by another process."""
    log = LogWriter(folder_of_study("reading"))
    writer = StudyWriter(log)
    writer.record_points(attempt, [noisy(writer.state.last_step(attempt) // 500 + 1, points)])
    log.close()


def starts(count: int) -> list[AttemptStart]:
    """Of two cells, one configuration each."""
    study = parse_spec(PLAIN, StudySpec, where="benchmark")
    cells = resolve_cells(study, where="benchmark")
    return [_start(study, cells[number % len(cells)], number) for number in range(count)]


def _start(study: StudySpec, cell: Cell, number: int) -> AttemptStart:
    configuration = {"training.learning_rate": 1e-4 * (1 + number)}
    trial = build_trial(study, cell, configuration, trial=f"{cell.name}-c{number:05}-s0", seed=0)
    return AttemptStart(
        "reading", trial.trial, cell.name, cell.network_name, cell.loss_name, 1, 0, "search", configuration,
        trial.to_plain(), {f"package_{key}": "1.2.3" for key in range(15)}, {"images": 1000, "captions": 5000},
    )


def noisy(step: int, draw: int) -> ValidationPoint:
    """With as many numbers as a training reports, none of which repeats."""
    random = Random(1000 * draw + step)
    seconds = {name: step * random.random() for name in TIMES}
    recalls = {name: round(1000 * random.random()) / 10 for name in RECALLS}
    others = {"train_loss": random.random(), "learning_rate": 2e-4 if step < 30 else 2e-5}
    return ValidationPoint(
        500 * step, 64_000 * step / 145_000, 64_000 * step, sum(recalls.values()) / len(recalls),
        step * random.random(), seconds | recalls | others,
    )


if __name__ == "__main__":
    main()
