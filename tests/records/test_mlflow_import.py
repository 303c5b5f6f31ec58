"""A study brought home from an MLflow alone: from an export of its log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from foreign_exports import CONFIG, WEIGHTS, at, boards, goes_on, record
from mlflow import MlflowClient
from refusals import refused

from vsetune.errors import DataError, UsageError
from vsetune.records.events import Event
from vsetune.records.log import LOG_FILE, LogWriter, lines_of
from vsetune.records.mlflow_export import MlflowExport
from vsetune.records.mlflow_import import bring_study
from vsetune.records.studies import Studies

__all__ = ["at"]
pytestmark = pytest.mark.filterwarnings("default")  # MLflow's dependencies warn about themselves


def export(folder: Path, uri: str) -> None:
    made = MlflowExport(uri, folder, series="m_recall", file=lambda name: folder / name)
    while made.advance():
        pass


def test_an_exported_study_comes_home_with_its_attempts_numbers_search_and_weights(
    at: Callable[[str], Path], mlflow_here: str
) -> None:
    here = at("here")
    record(here)
    before, lines = boards(), [line.event() for line in lines_of(here / LOG_FILE)]
    export(here, mlflow_here)
    there = at("elsewhere")
    assert bring_study("nightly", mlflow_here) == ("nightly", 2)
    assert boards() == before
    assert [line.event() for line in lines_of(there / LOG_FILE)][1:] == lines[1:]
    assert (there / WEIGHTS).read_bytes() == b"weights"
    assert Studies().record("nightly").config == CONFIG | {"tracking": {"series": "all"}}
    assert bring_study("nightly", mlflow_here) == ("nightly", 0)


def test_what_was_exported_later_is_brought_later(at: Callable[[str], Path], mlflow_here: str) -> None:
    here = at("here")
    record(here)
    export(here, mlflow_here)
    at("elsewhere")
    bring_study("nightly", mlflow_here)
    at("here")
    goes_on(here, 2)
    after = boards()
    export(here, mlflow_here)
    at("elsewhere")
    assert bring_study("nightly", mlflow_here) == ("nightly", 2)
    assert boards() == after


@pytest.mark.parametrize("damaged", [0, 3, 9])
@pytest.mark.parametrize("later", [0, 2])
def test_a_damaged_log_is_mended_from_mlflow_and_keeps_what_came_later(
    at: Callable[[str], Path], mlflow_here: str, damaged: int, later: int
) -> None:
    here = at("here")
    record(here)
    export(here, mlflow_here)
    if later:
        goes_on(here, later)
    before, whole = boards(), [line.event() for line in lines_of(here / LOG_FILE)]
    lines = (here / LOG_FILE).read_bytes().splitlines(keepends=True)
    lines[damaged] = lines[damaged].replace(b":", b";", 1).replace(b"[", b"(", 1)
    (here / LOG_FILE).write_bytes(b"".join(lines))
    with refused("VSE-R001", by=DataError):
        LogWriter(here)
    assert bring_study("nightly", mlflow_here) == ("nightly", 1)
    mended = [line.event() for line in lines_of(here / LOG_FILE, number=0, strict=True)]
    assert mended[1:] == whole[1:]
    assert boards() == before
    assert (here / "study.log.damaged-1").read_bytes() == b"".join(lines)
    assert bring_study("nightly", mlflow_here) == ("nightly", 0)
    export(here, mlflow_here)
    assert MlflowExport(mlflow_here, here, series="m_recall", file=lambda name: None).differences() == []


def test_a_log_that_is_damaged_behind_what_mlflow_has_stays_as_it_is(
    at: Callable[[str], Path], mlflow_here: str
) -> None:
    here = at("here")
    record(here)
    export(here, mlflow_here)
    goes_on(here, 2)
    lines = (here / LOG_FILE).read_bytes().splitlines(keepends=True)
    lines[-2] = lines[-2][:-9] + b"\n"
    (here / LOG_FILE).write_bytes(b"".join(lines))
    with pytest.raises(DataError, match=f"VSE-R461|damaged at line {len(lines) - 2}"):
        bring_study("nightly", mlflow_here)
    assert (here / LOG_FILE).read_bytes() == b"".join(lines)


def test_of_two_homes_with_one_name_each_gets_its_own_log_back(at: Callable[[str], Path], mlflow_here: str) -> None:
    whole = {}
    for name in ("here", "there"):
        record(at(name))
        if name == "there":
            goes_on(at(name), 2)
        export(at(name), mlflow_here)
        whole[name] = events(at(name))
    for name in whole:
        log = at(name) / LOG_FILE
        log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:2]))
        bring_study("nightly", mlflow_here)
        assert events(at(name)) == whole[name]
    elsewhere = at("elsewhere")
    with pytest.raises(UsageError, match=r"several homes.*nightly \((\d+)\), nightly-\w+ \((\d+)\)|nightly-\w+ \("):
        bring_study("nightly", mlflow_here)
    second = next(each for each in MlflowClient(mlflow_here).search_experiments() if each.name.startswith("nightly-"))
    assert bring_study(second.experiment_id, mlflow_here)[0] == "nightly"
    assert events(elsewhere) == whole["there"]


def events(folder: Path) -> list[Event]:
    """Without the openings: an import drops the address of MLflow from them."""
    return [line.event() for line in lines_of(folder / LOG_FILE) if line.kind != "opened"]


def test_a_study_that_no_driver_has_left_has_no_log_there(at: Callable[[str], Path], mlflow_here: str) -> None:
    here = at("here")
    record(here)
    log = here / LOG_FILE
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    export(here, mlflow_here)
    at("elsewhere")
    with pytest.raises(DataError, match="has no log of it"):
        bring_study("nightly", mlflow_here)


def test_what_is_no_study_of_that_mlflow_is_told(mlflow_here: str, at: Callable[[str], Path]) -> None:
    at("elsewhere")
    client = MlflowClient(mlflow_here)
    client.create_experiment("theirs")
    client.create_experiment("empty", tags={"vsetune.kind": "study"})
    for name in ("nowhere", "theirs"):
        with refused("VSE-R035", by=UsageError, study=name):
            bring_study(name, mlflow_here)
    with refused("VSE-R036", by=DataError, study="empty"):
        bring_study("empty", mlflow_here)
