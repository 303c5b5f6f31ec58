"""The words of typical errors, as people read them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from studied import BEGUN, OPENED, RECORD

from vsetune.errors import VsetuneError
from vsetune.records.log import LogWriter
from vsetune.records.mlflow_client import in_one_line, open_client, opening
from vsetune.records.moved_study import export_study, import_study
from vsetune.records.studies import Studies, folder_of_study
from vsetune.records.writer import StudyWriter


def text_of(do: Callable[[], object], home: Path) -> str:
    with pytest.raises(VsetuneError) as caught:
        do()
    return str(caught.value).replace(str(home), "HOME").replace(tempfile.gettempdir(), "TEMPORARY")


def raised_in(around: Any, error: Exception) -> None:
    with around:
        raise error


def test_typical_refusals_read_like_this(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: Any) -> None:
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    folder = folder_of_study("tiny")
    log = LogWriter(folder)
    writer = StudyWriter(log)
    writer.open_study(RECORD, resume=False)
    log.append(BEGUN)
    log.close()
    (tmp_path / "text.zip").write_text("text")
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "study.log").write_bytes((folder / "study.log").read_bytes().replace(b"tiny", b"tina", 1))
    store = "postgresql://me:secret@db/studies"
    assert [text_of(each, tmp_path) for each in (
        lambda: Studies().attempts("tiyn"),
        lambda: Studies().attempt("tiny/none/1"),
        lambda: writer.open_study(RECORD, resume=False),
        lambda: writer.open_study(replace(RECORD, fingerprint="f2", config={"baseline": "lseh"}), resume=True),
        lambda: writer.history.add(replace(OPENED, format=9)),
        lambda: LogWriter(damaged),
        lambda: import_study(tmp_path / "text.zip"),
        lambda: export_study("tiny", tmp_path / "text.zip"),
        lambda: open_client("runs/mlruns"),
        lambda: raised_in(in_one_line(store, "export"), OSError(28, "No space left on device")),
        lambda: raised_in(opening(store), ModuleNotFoundError("no psycopg", name="psycopg")),
    )] == snapshot
