"""What reading a large study takes: straight out of MLflow's tables, with and without MLflow, against its search.

    PYTHONPATH=platform python benchmarks/reading_attempts.py [--attempts 3000] [--points 50] [--ways rows read]

Writes so many attempts into MLflow's tables in a temporary SQLite file: tags, params and newest numbers as a study
leaves them, without the histories of the numbers, which no way reads. Each way then runs in a process of its own: the
first reading with the leaderboard of it, and the same again after one attempt has ended; of the seconds, in how many
the processor worked at it. `search`: MLflow's own.
`rows`: the tables through MLflow's connections, as on PostgreSQL. `read`: as commands read a SQLite file, without
loading MLflow. `server`, only where it is asked for: by requests to an MLflow server with one worker, which has the
file; what is worked is without the server's part. Peak memory is of the process, all that it has imported included. At
last the bytes of an attempt in the file, histories included, of 100 that are recorded through the store, with numbers
that do not repeat; `--series all` for those of a study that has all its numbers drawn. Takes three minutes; expect,
with 10,000 attempts, a first board below 10 s, one refreshed in less than a second, less than 400 MB, and less than
40 KB an attempt.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from random import Random
from typing import Any

from vsetune.tracking import AttemptStart, StudyRecord, TrackingStore, ValidationPoint, encoding, open_store
from vsetune.tracking.opening import open_existing
from vsetune.tracking.point_blocks import NO_BLOCK, with_points

from chaos.processes import Processes
from chaos.servers import HOST, Server, free_ports
from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import Cell, build_trial, resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.leaderboard.building import build

PLAIN = {
    "study": "reading", "data": {"path": "none"}, "networks": [{"name": "vsepp"}], "baseline": "lmh",
    "losses": [{"name": "lseh"}, {"name": "lmh"}], "training": {"epochs": 50},
    "search": {"training": {"learning_rate": "default"}, "sampler": "random", "configurations": 6000},
}
SUMMARY = {"best_m_recall": 30.0, "train_seconds": 100.0, "device_seconds": 120.0, "epochs": 5.0, "epochs_to_best": 5.0}
RECORDED = 100
AT_ONCE = 5
TIMES = ("load_seconds", "validation_seconds", "device_seconds", "pairs_per_second", "i2t_mean", "t2i_mean", "rsum")
RECALLS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10")
WAYS = ("search", "rows", "read", "server")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, default=3000)
    parser.add_argument("--points", type=int, default=50)
    parser.add_argument("--read", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS[:3])
    parser.add_argument("--series", choices=["m_recall", "all"], default="m_recall")
    parser.add_argument("--uri", help=argparse.SUPPRESS)
    parser.add_argument("--change", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.change is not None:  # by another process: what it loads is not measured
        store = open_store(arguments.uri, None, curve_plots=False)
        store.finish_attempt(arguments.change, "finished", {**SUMMARY, "epochs": 4.9}, [], None)
        return
    if arguments.read is not None:
        print(json.dumps(measured(arguments.uri, arguments.read)))
        return
    with tempfile.TemporaryDirectory() as folder:
        uri = f"sqlite:///{Path(folder) / 'mlflow.db'}"
        fill(uri, arguments.attempts, arguments.points)
        heads = f"{'first board, s':>16} {'worked':>8} {'again, s':>10} {'worked':>8} {'peak, MB':>10}"
        heads = ("first board, s", "worked", "again, s", "worked", "peak, MB")
        widths = (16, 8, 10, 8, 10)
        shown = " ".join(f"{head:>{wide}}" for head, wide in zip(heads, widths, strict=True))
        print(f"{arguments.attempts} attempts".ljust(15), shown)
        told = {}
        for way in arguments.ways:
            with behind_a_server(uri) if way == "server" else nullcontext(uri) as place:
                words = [sys.executable, __file__, "--read", way, "--uri", place]
                done = subprocess.run(words, check=True, capture_output=True, text=True)
            told[way] = json.loads(done.stdout.splitlines()[-1])
            print(f"{way:15} {told[way]['first']:16.2f} {told[way]['first_worked']:8.2f} {told[way]['again']:10.2f} "
                  f"{told[way]['again_worked']:8.2f} {told[way]['peak_mb']:10.0f}", flush=True)
        if {"search", "read"} <= told.keys():
            ratios = [told["search"][name] / told["read"][name] for name in ("first", "again")]
            print(f"ratio: {ratios[0]:.1f} the first time, {ratios[1]:.1f} again")
        size = kilobytes(Path(folder), arguments.points, all_numbers=arguments.series == "all")
        print(f"an attempt in the file, histories included: {size:.1f} KB")


def measured(uri: str, way: str) -> dict[str, float]:
    """Seconds of the first board and of the next, and the most memory that the process has had."""
    store: Any = open_existing(uri) if way == "read" else open_store(uri, None, curve_plots=False)
    if way == "search":
        from vsetune.tracking.mlflow_searching import SearchedAttempts

        store._reading = SearchedAttempts(store._client)
    seconds, processor = [], []
    for turn in range(2):
        begin, working = time.perf_counter(), time.process_time()
        attempts = store.attempts("reading")
        board = build(attempts, baseline="lmh")
        seconds.append(time.perf_counter() - begin)
        processor.append(time.process_time() - working)
        assert board.rows
        if turn == 0:
            changed = [sys.executable, __file__, "--uri", uri, "--change", attempts[0].attempt_id]
            subprocess.run(changed, check=True)
        del attempts, board
    status = Path("/proc/self/status").read_text()  # `getrusage` counts what the parent had, too
    peak_kb = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
    return {
        "first": seconds[0], "again": seconds[1], "first_worked": processor[0], "again_worked": processor[1],
        "peak_mb": peak_kb / 1000,
    }


@contextmanager
def behind_a_server(uri: str) -> Iterator[str]:
    """The address of an MLflow server with one worker in front of a database."""
    (port,) = free_ports(1)
    address = f"http://{HOST}:{port}"
    command = [
        sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri, "--host", HOST, "--port", str(port),
        "--workers", "1",
    ]
    env = os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=2) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False

    with tempfile.TemporaryDirectory() as folder:
        processes, place = Processes(), Path(folder)
        with Server("tracking", command, folder=place, env=env, processes=processes, answers=answers).running():
            yield address


def fill(uri: str, attempts: int, points: int) -> None:
    """All in one go: through the store it would take minutes."""
    from mlflow.store.tracking.dbmodels import models
    from sqlalchemy import insert
    from vsetune.tracking.mlflow_sqlite import engine_of

    store: Any = open_store(uri, None, curve_plots=False)
    store.open_study(StudyRecord("reading", "f00d", PLAIN), resume=False)
    experiment = int(store._place("reading")[0])
    curves = [block_tags(points, draw) for draw in range(50)]
    ended = encoding.seen_tag(1.0) | {encoding.STATUS: "finished"}
    ended |= encoding.in_pieces(encoding.SUMMARY, encoding.to_json(SUMMARY))
    rows: dict[Any, list[dict[str, Any]]] = {
        table: [] for table in (models.SqlRun, models.SqlTag, models.SqlParam, models.SqlLatestMetric)
    }
    for number, start in enumerate(starts(attempts)):
        run = uuid.uuid4().hex
        rows[models.SqlRun].append({
            "run_uuid": run, "name": start.trial, "experiment_id": experiment, "status": "FINISHED", "user_id": "us",
            "start_time": 1_700_000_000_000 + 10_000 * number, "end_time": 1_700_000_100_000 + 10_000 * number,
            "source_type": "LOCAL",
            "lifecycle_stage": "active", "artifact_uri": "none",
        })
        rows[models.SqlTag] += _pairs(run, encoding.attempt_tags(start) | ended | curves[number % len(curves)])
        rows[models.SqlParam] += _pairs(run, encoding.attempt_params(start))
        rows[models.SqlLatestMetric] += [
            {"run_uuid": run, "key": name, "value": value, "timestamp": 1, "step": 1, "is_nan": False}
            for name, value in {"m_recall": 30.0, **SUMMARY}.items()
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


def noisy(step: int, draw: int) -> ValidationPoint:
    """With as many numbers as a training reports, none of which compresses."""
    random = Random(1000 * draw + step)
    seconds = {name: step * random.random() for name in TIMES}
    recalls = {name: round(1000 * random.random()) / 10 for name in RECALLS}
    others = {"train_loss": random.random(), "learning_rate": 2e-4 if step < 30 else 2e-5}
    return ValidationPoint(
        500 * step, 64_000 * step / 145_000, 64_000 * step, sum(recalls.values()) / len(recalls),
        step * random.random(), seconds | recalls | others,
    )


def block_tags(points: int, draw: int) -> dict[str, str]:
    blocks = with_points(NO_BLOCK, [noisy(step, draw) for step in range(1, points + 1)])
    return {key: text for block in blocks for key, text in block.tags.items()}


def kilobytes(folder: Path, points: int, *, all_numbers: bool) -> float:
    """Of an attempt that is recorded through the store; the empty tables are taken off."""
    database = folder / "recorded.db"
    store: TrackingStore = open_store(
        f"sqlite:///{database}", folder / "artifacts", curve_plots=False, all_numbers=all_numbers
    )
    store.open_study(StudyRecord("reading", "f00d", PLAIN), resume=False)
    empty = _size(database)
    ids = [store.start_attempt(start) for start in starts(RECORDED)]
    for first in range(1, points + 1, AT_ONCE):
        steps = range(first, min(first + AT_ONCE, points + 1))
        store.record_batch({attempt_id: [noisy(step, draw) for step in steps] for draw, attempt_id in enumerate(ids)})
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
