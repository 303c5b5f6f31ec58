"""How long the board of a large study takes from its log, against asking MLflow for every metric of every attempt.

    PYTHONPATH=platform python benchmarks/leaderboard_time.py [ATTEMPTS]

Writes the log of ATTEMPTS (default 1,000) attempts of 20 points into a temporary home, then times (a) attempts() +
build() of all of them by a fresh reader and (b) one get_metric_history call per metric on the first 20 of them, which
are exported to MLflow in a SQLite file, scaled up. Takes half a minute on two cores. Expect (a) below 1 s and a ratio
above 10.
"""

from __future__ import annotations

import gc
import math
import os
import sys
import tempfile
import time
from pathlib import Path

from vsetune.board.building import build
from vsetune.cli.entry import GARBAGE_THRESHOLD
from vsetune.records.events import AttemptStart, StudyRecord, ValidationPoint
from vsetune.records.log import LogWriter
from vsetune.records.mlflow_export import MlflowExport
from vsetune.records.studies import Studies, folder_of_study
from vsetune.records.writer import StudyWriter

POINTS = 20
SAMPLE = 20
METRICS = ("m_recall", "epoch", "train_seconds")
RECALLS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10", "train_loss")
LOSSES = ("lmh", "lsh", "lseh", "info_nce")


def main(attempts: int) -> None:
    gc.set_threshold(GARBAGE_THRESHOLD)  # as every command does
    with tempfile.TemporaryDirectory() as home:
        os.environ["VSETUNE_HOME"] = home
        log = LogWriter(folder_of_study("benchmark"))
        writer = StudyWriter(log)
        writer.open_study(StudyRecord("benchmark", "0" * 16, {"losses": list(LOSSES)}), resume=False)
        sample = min(SAMPLE, attempts)
        record(writer, range(sample))
        log.settle()
        uri = f"sqlite:///{Path(home) / 'mlflow.db'}"
        export = MlflowExport(uri, log.path.parent, series="all", file=lambda name: None)
        while export.advance():
            pass
        record(writer, range(sample, attempts))
        log.close()

        begin = time.perf_counter()
        found = Studies().attempts("benchmark")
        read = time.perf_counter() - begin
        leaderboard = build(found, baseline="lmh")
        ours = time.perf_counter() - begin
        cells = len(leaderboard.rows)
        print(f"leaderboard of {len(found)} attempts, {cells} cells: {ours:.2f} s ({read:.2f} s reading)")

        runs = Studies().in_mlflow("benchmark")[1]
        naive = seconds_for_histories(uri, list(runs.values())) * attempts / sample
        print(f"{len(METRICS)} get_metric_history calls per attempt: {naive:.2f} s (scaled up from {sample} attempts)")
        print(f"ratio: {naive / ours:.1f}")


def record(writer: StudyWriter, numbers: range) -> None:
    for index in numbers:
        loss = LOSSES[index % len(LOSSES)]
        curve = points(45 + index % 20)
        name = writer.start_attempt(AttemptStart(
            study="benchmark", trial=f"vsepp.{loss}-c{index:04d}-s0", cell=f"vsepp.{loss}", network="vsepp", loss=loss,
            number=1, seed=0, phase="search", configuration={"loss.margin": 0.2, "training.learning_rate": index / 1e6},
            resolved={"data": {"path": "data/scenes"}, "training": {str(key): key for key in range(20)}},
            environment={f"package_{key}": "1.2.3" for key in range(15)}, protocol={"images": 400, "captions": 2000},
        ))
        writer.record_points(name, curve)
        summary = {"train_seconds": 200.0, "device_seconds": 240.0, "best_m_recall": curve[-1].m_recall}
        writer.finish_attempt(name, "finished", summary=summary, error=None)


def points(height: float) -> list[ValidationPoint]:
    return [
        ValidationPoint(
            step=500 * number, epoch=number * 0.441306, pairs_seen=64_000 * number,
            m_recall=height * (1 - math.exp(-number / 5)), train_seconds=10.0 * number,
            metrics=dict.fromkeys(RECALLS, float(number)),
        )
        for number in range(1, POINTS + 1)
    ]


def seconds_for_histories(uri: str, run_ids: list[str]) -> float:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    client.get_metric_history(run_ids[0], METRICS[0])
    begin = time.perf_counter()
    for run_id in run_ids:
        for name in METRICS:
            client.get_metric_history(run_id, name)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
