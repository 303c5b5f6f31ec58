"""What reading a large study takes: straight out of MLflow's tables against MLflow's search, and reading it again.

    PYTHONPATH=platform python benchmarks/reading_attempts.py [--attempts 3000] [--points 50]

Writes so many attempts into MLflow's tables in a temporary SQLite file: tags, params and newest numbers as a study
leaves them, without the histories of the numbers, which neither way reads. Each way then runs in a process of its own:
the first reading with the leaderboard of it, and the same again after one attempt has ended. Peak memory is of the
process, all that it has imported included. At last the bytes of an attempt in the file, histories included, of 20 that
are recorded through the store. Takes two minutes; expect ratios above 5, and with 10,000 attempts a first board below
10 s, one refreshed in a second and less than 400 MB.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import insert

from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import Cell, build_trial, resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.leaderboard.building import build
from vsetune.tracking import AttemptStart, StudyRecord, TrackingStore, encoding, open_store

PLAIN = {
    "study": "reading", "data": {"path": "none"}, "networks": [{"name": "vsepp"}], "baseline": "lmh",
    "losses": [{"name": "lseh"}, {"name": "lmh"}], "training": {"epochs": 50},
    "search": {"training": {"learning_rate": "default"}, "sampler": "random", "configurations": 6000},
}
SUMMARY = {"best_m_recall": 30.0, "train_seconds": 100.0, "device_seconds": 120.0, "epochs": 5.0, "epochs_to_best": 5.0}
RECORDED = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, default=3000)
    parser.add_argument("--points", type=int, default=50)
    parser.add_argument("--read", choices=["rows", "search"], help=argparse.SUPPRESS)
    parser.add_argument("--uri", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read is not None:
        print(json.dumps(measured(arguments.uri, by_search=arguments.read == "search")))
        return
    with tempfile.TemporaryDirectory() as folder:
        uri = f"sqlite:///{Path(folder) / 'mlflow.db'}"
        fill(uri, arguments.attempts, arguments.points)
        print(f"{arguments.attempts} attempts {'first board, s':>16} {'again, s':>10} {'peak, MB':>10}")
        told = {}
        for way in ("search", "rows"):
            words = [sys.executable, __file__, "--read", way, "--uri", uri]
            done = subprocess.run(words, check=True, capture_output=True, text=True)
            told[way] = json.loads(done.stdout.splitlines()[-1])
            print(f"{way:15} {told[way]['first']:16.2f} {told[way]['again']:10.2f} {told[way]['peak_mb']:10.0f}")
        ratios = [told["search"][name] / told["rows"][name] for name in ("first", "again")]
        print(f"ratio: {ratios[0]:.1f} the first time, {ratios[1]:.1f} again")
        print(f"an attempt in the file, histories included: {kilobytes(Path(folder), arguments.points):.0f} KB")


def measured(uri: str, *, by_search: bool) -> dict[str, float]:
    """Seconds of the first board and of the next, and the most memory that the process has had."""
    store: Any = open_store(uri, None, curve_plots=False)
    if by_search:
        store._reading = None
    seconds = []
    for _ in range(2):
        begin = time.perf_counter()
        attempts = store.attempts("reading")
        board = build(attempts, baseline="lmh")
        seconds.append(time.perf_counter() - begin)
        assert board.rows
        store.finish_attempt(attempts[0].attempt_id, "finished", {**SUMMARY, "epochs": 4.9}, [], None)
        del attempts, board
    status = Path("/proc/self/status").read_text()  # `getrusage` counts what the parent had, too
    peak_kb = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
    return {"first": seconds[0], "again": seconds[1], "peak_mb": peak_kb / 1000}


def fill(uri: str, attempts: int, points: int) -> None:
    """All in one go: through the store it would take minutes."""
    from mlflow.store.tracking.dbmodels import models
    from recording import point

    from vsetune.tracking.mlflow_sqlite import engine_of

    store: Any = open_store(uri, None, curve_plots=False)
    store.open_study(StudyRecord("reading", "f00d", PLAIN), resume=False)
    experiment = int(store._place("reading")[0])
    curve = encoding.curve_tags([encoding.CurvePoint.of(point(step)) for step in range(1, points + 1)])
    ended = curve | encoding.seen_tag(1.0) | {encoding.STATUS: "finished"}
    ended |= encoding.in_pieces(encoding.SUMMARY, encoding.to_json(SUMMARY))
    rows: dict[Any, list[dict[str, Any]]] = {
        table: [] for table in (models.SqlRun, models.SqlTag, models.SqlParam, models.SqlLatestMetric)
    }
    for number, start in enumerate(starts(attempts)):
        run = uuid.uuid4().hex
        rows[models.SqlRun].append({
            "run_uuid": run, "name": start.trial, "experiment_id": experiment, "status": "FINISHED", "user_id": "us",
            "start_time": 1_700_000_000_000 + number, "end_time": 1_700_000_100_000 + number, "source_type": "LOCAL",
            "lifecycle_stage": "active", "artifact_uri": "none",
        })
        rows[models.SqlTag] += _pairs(run, encoding.attempt_tags(start) | ended)
        rows[models.SqlParam] += _pairs(run, encoding.attempt_params(start))
        rows[models.SqlLatestMetric] += [
            {"run_uuid": run, "key": name, "value": value, "timestamp": 1, "step": 1, "is_nan": False}
            for name, value in encoding.point_metrics(point(points)).items()
        ]
    engine = engine_of(uri)
    assert engine is not None
    with engine.begin() as connection:
        for model, entries in rows.items():
            connection.execute(insert(model.__table__), entries)


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


def _pairs(run: str, texts: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"run_uuid": run, "key": key, "value": text} for key, text in texts.items()]


def kilobytes(folder: Path, points: int) -> float:
    """Of an attempt that is recorded through the store; the empty tables are taken off."""
    from recording import point

    database = folder / "recorded.db"
    store: TrackingStore = open_store(f"sqlite:///{database}", folder / "artifacts", curve_plots=False)
    store.open_study(StudyRecord("reading", "f00d", PLAIN), resume=False)
    empty = _size(database)
    ids = [store.start_attempt(start) for start in starts(RECORDED)]
    store.record_batch({attempt_id: [point(step) for step in range(1, points + 1)] for attempt_id in ids})
    for attempt_id in ids:
        store.finish_attempt(attempt_id, "finished", SUMMARY, [], None)
    return (_size(database) - empty) / RECORDED / 1000


def _size(database: Path) -> int:
    with closing(sqlite3.connect(database)) as connection:
        pages, = connection.execute("PRAGMA page_count").fetchone()
        size, = connection.execute("PRAGMA page_size").fetchone()
    return int(pages) * int(size)


if __name__ == "__main__":
    main()
