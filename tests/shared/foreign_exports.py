"""Exports of a small study, to be spoiled as somebody else might have made them, and brought into a home."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from vsetune.tracking import AttemptStart, StudyRecord, ValidationPoint, moving, open_store
from vsetune.tracking.exported_study import opened_study, written_study

from vsetune.files.hashes import sha256_of_file

CONFIG = {
    "study": "nightly", "networks": [{"name": "vsepp"}], "losses": [{"name": "lmh"}], "baseline": "lmh",
    "tracking": {"folder": "runs", "uri": None, "series": "all"},
}


@pytest.fixture(scope="module")
def export(empty_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder: a study of two attempts with numbers, files and a search."""
    place = tmp_path_factory.mktemp("original")
    shutil.copy(empty_database, place / "mlflow.db")
    uri = f"sqlite:///{place / 'mlflow.db'}"
    store = open_store(uri, None, curve_plots=False)
    store.open_study(StudyRecord("nightly", "f00d", CONFIG, {}), resume=False)
    for seed in range(2):
        start = AttemptStart(
            "nightly", f"vsepp.lmh-c000-s{seed}", "vsepp.lmh", "vsepp", "lmh", 1, seed, "search", {"loss.margin": 0.2},
            {"network": {"name": "vsepp"}, "plugins": {}}, {"device": "cpu"}, {"images": 400},
        )
        run = store.start_attempt(start)
        store.record_points(run, [ValidationPoint(10, 0.5, 640, 50.0, 2.0, {"loss": 0.1}),
                                  ValidationPoint(20, 1.0, 1280, 60.0, 4.0, {"device_seconds": 5.0})])
        store.finish_attempt(run, "finished", {"best_m_recall": 60.0}, [], None)
    store.finish_study("nightly", "finished", [])
    with closing(sqlite3.connect(place / "search.db")) as search, search:
        search.execute("CREATE TABLE trials (number INTEGER)")
    with written_study(place / "export") as writer:
        moving.exporter(uri).export("nightly", writer, search=place / "search.db", on_run=lambda name: None)
    return place / "export"


def read(folder: Path, name: str = "study.json") -> Any:
    return json.loads((folder / name).read_text())


def write(folder: Path, name: str, content: Any) -> None:
    """A file of the export with the right hash, as its sender would write it. content: JSON-able, or bytes."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    if name != "study.json":
        header = read(folder)
        header["files"][name] = {"sha256": sha256_of_file(file), "size": file.stat().st_size}
        write(folder, "study.json", header)


def run_of(folder: Path, kind: str) -> str:
    """The file of the run of the study, or of the first attempt."""
    runs = [f"runs/{run}.json" for run in read(folder)["runs"]]
    return next(name for name in runs if read(folder, name)["tags"]["vsetune.kind"] == kind)


def changed(folder: Path, name: str, change: Callable[[Any], object]) -> None:
    plain = read(folder, name)
    change(plain)
    write(folder, name, plain)


def everything_below(place: Path) -> set[Path]:
    return set(place.rglob("*"))


def bring(place: Path, home: Path) -> moving.Imported:
    with opened_study(place) as exported:
        return moving.importer(f"sqlite:///{home / 'mlflow.db'}", None).bring(exported, on_run=lambda name: None)
