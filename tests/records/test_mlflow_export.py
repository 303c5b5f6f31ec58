"""A log copied to MLflow: what people find there, and that nothing is lost, doubled or out of order."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from full_disk import largest_file
from mlflow import MlflowClient
from mlflow.entities import Run
from refusals import refused
from studied import BEGUN, OPENED, attempt_of, point, start

from vsetune.errors import StorageError
from vsetune.home.whole_files import read_json
from vsetune.records.events import Begun, Closed, Ended, Event, Validated, attempt_id
from vsetune.records.log import LogWriter, lines_of
from vsetune.records.mlflow_descriptions import VIEW_TAG, charts_view
from vsetune.records.mlflow_export import MlflowExport

pytestmark = pytest.mark.filterwarnings("default")  # MLflow's dependencies warn about themselves
ATTEMPT = attempt_of(BEGUN)
CURVE = tuple(point(step, m_recall=30.0 + step) for step in range(1, 6))


@pytest.fixture
def uri(empty_store: Path, tmp_path: Path) -> str:
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "tiny").mkdir()
    return tmp_path / "tiny"


def write(folder: Path, *events: Event) -> None:
    writer = LogWriter(folder)
    for event in events:
        writer.append(event)
    writer.close()


@pytest.fixture
def export(uri: str, folder: Path) -> Callable[..., MlflowExport]:
    def made(series: str = "all") -> MlflowExport:
        return MlflowExport(uri, folder, series=series, file=lambda name: folder / name)

    return made


def all_of(made: MlflowExport) -> None:
    while made.advance():
        pass


def runs_of(uri: str) -> dict[str, Run]:
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("tiny")
    assert experiment is not None
    return {run.data.tags["vsetune.attempt"]: run for run in client.search_runs([experiment.experiment_id])}


def series(uri: str, run: Run, name: str) -> list[tuple[int, float]]:
    return [(each.step, each.value) for each in MlflowClient(uri).get_metric_history(run.info.run_id, name)]


def test_people_find_params_every_series_files_times_and_a_status(
    uri: str, folder: Path, export: Callable[..., MlflowExport]
) -> None:
    (folder / "best.safetensors").write_bytes(b"weights")
    (folder / "leaderboard.html").write_text("a board")
    write(
        folder, OPENED, BEGUN, *(Validated(ATTEMPT, (each,), 3.0 + each.step) for each in CURVE),
        Ended(ATTEMPT, "pruned", {"best_m_recall": 35.0, "epochs_to_best": 0.5}, ("best.safetensors",), "asha", 10.0),
        Closed("finished", ("leaderboard.html",), 11.0),
    )
    all_of(export())
    runs = runs_of(uri)
    run, study = runs[ATTEMPT], runs["tiny"]
    assert run.data.params["loss.margin"] == "0.2"
    assert series(uri, run, "m_recall") == [(each.step, each.m_recall) for each in CURVE]
    for name in ("i2t_r1", "device_seconds", "epoch", "pairs_seen", "train_seconds"):
        assert len(series(uri, run, name)) == 5, name
    assert series(uri, run, "best_m_recall") == [(5, 35.0)]
    assert (run.info.status, run.data.tags["status"], run.data.tags["error"]) == ("FINISHED", "pruned", "asha")
    assert (run.info.start_time, run.info.end_time) == (3000, 10000)
    assert run.data.tags["mlflow.parentRunId"] == study.info.run_id
    assert (study.info.status, study.info.start_time, study.info.end_time) == ("FINISHED", 1000, 11000)
    client = MlflowClient(uri)
    assert {each.path for each in client.list_artifacts(run.info.run_id)} == {"config.yaml", "best.safetensors"}
    assert {each.path for each in client.list_artifacts(study.info.run_id)} == {
        "study.yaml", "study.log", "leaderboard.html"
    }


def test_from_a_copied_home_nothing_is_written_beside_the_original(
    tmp_path: Path, folder: Path, export: Callable[..., MlflowExport]
) -> None:
    write(folder, OPENED, BEGUN)
    all_of(export())
    copy, original = tmp_path / "copy", sorted((tmp_path / "artifacts").rglob("*"))
    copy.mkdir()
    shutil.copy(tmp_path / "mlflow.db", copy)
    shutil.copytree(folder, copy / "tiny")
    there = f"sqlite:///{copy / 'mlflow.db'}"
    exporting = MlflowExport(there, copy / "tiny", series="all", file=lambda name: None)
    with refused("VSE-R043", by=StorageError, folder=tmp_path / "artifacts" / "tiny"):
        exporting.advance()
    assert sorted((tmp_path / "artifacts").rglob("*")) == original
    anew = f"sqlite:///{copy / 'anew.db'}"
    all_of(MlflowExport(anew, copy / "tiny", series="all", file=lambda name: None))
    assert set(runs_of(anew)) == {"tiny", ATTEMPT}


def test_a_home_may_have_two_names(tmp_path: Path, folder: Path, export: Callable[..., MlflowExport]) -> None:
    write(folder, OPENED, BEGUN)
    all_of(export())
    name = tmp_path.parent / f"{tmp_path.name}-too"
    name.symlink_to(tmp_path)
    uri = f"sqlite:///{name / 'mlflow.db'}"
    all_of(MlflowExport(uri, name / "tiny", series="all", file=lambda name: None))
    assert set(runs_of(uri)) == {"tiny", ATTEMPT}


def test_attempts_that_a_dead_driver_left_are_killed_there_and_a_resumed_one_runs(
    uri: str, folder: Path, export: Callable[..., MlflowExport]
) -> None:
    other = start("vsepp.lmh-c001-s0")
    write(folder, OPENED, BEGUN, Begun(other, 4.0), replace(OPENED, at=9.0), replace(BEGUN, at=10.0))
    all_of(export())
    runs = runs_of(uri)
    assert (runs[ATTEMPT].info.status, runs[ATTEMPT].data.tags["status"]) == ("RUNNING", "running")
    killed = runs[f"tiny/{other.trial}/1"]
    assert (killed.info.status, killed.data.tags["status"], killed.info.end_time) == ("KILLED", "killed", 9000)


@pytest.mark.parametrize("kept_note", ["as it was", "of before", "lost"])
def test_what_is_exported_twice_is_there_once_with_its_description(
    uri: str, folder: Path, export: Callable[..., MlflowExport], kept_note: str
) -> None:
    write(folder, OPENED, BEGUN, *(Validated(ATTEMPT, (each,), 3.0 + each.step) for each in CURVE[:3]))
    all_of(export())
    kept = (folder / "mlflow.json").read_bytes()
    write(folder, *(Validated(ATTEMPT, (each,), 3.0 + each.step) for each in CURVE[3:]),
          Ended(ATTEMPT, "failed", {"best_m_recall": 35.0}, (), "numeric: nan", 10.0), Closed("finished", (), 11.0))
    all_of(export())
    if kept_note == "of before":
        (folder / "mlflow.json").write_bytes(kept)
    elif kept_note == "lost":
        (folder / "mlflow.json").unlink()
    all_of(export())
    runs = runs_of(uri)
    assert runs.keys() == {ATTEMPT, "tiny"}
    assert series(uri, runs[ATTEMPT], "m_recall") == [(each.step, each.m_recall) for each in CURVE]
    assert series(uri, runs[ATTEMPT], "best_m_recall") == [(5, 35.0)]
    assert [runs[name].info.status for name in (ATTEMPT, "tiny")] == ["FAILED", "FINISHED"]
    note = runs[ATTEMPT].data.tags["mlflow.note.content"]
    assert "**vsepp.lmh-c000-s0**: vsepp with lmh, seed 0, failed." in note
    assert "`vsetune trial gallery tiny/vsepp.lmh-c000-s0`" in note
    assert "Attempts: 1 failed." in runs["tiny"].data.tags["mlflow.note.content"]


@pytest.mark.parametrize("kind", ["all", "m_recall"])
def test_a_slim_export_has_m_recall_and_the_use_of_the_machine_alone_as_series(
    uri: str, folder: Path, export: Callable[..., MlflowExport], kind: str
) -> None:
    used = {"train_loss": 1.5, "system/cpu_utilization_percentage": 80.0}
    write(folder, OPENED, BEGUN, Validated(ATTEMPT, (point(3, metrics=used),), 4.0))
    all_of(export(kind))
    slim, found = {"m_recall", "system/cpu_utilization_percentage"}, set(runs_of(uri)[ATTEMPT].data.metrics)
    assert found == slim if kind == "m_recall" else found > slim | {"train_loss"}


def test_a_line_that_does_not_count_yet_is_not_exported(uri: str, folder: Path) -> None:
    """With a home on object storage: until its server has it, another driver may go on without it."""
    write(folder, OPENED)
    counts = (folder / "study.log").stat().st_size
    write(folder, BEGUN)
    ends = [counts]
    made = MlflowExport(uri, folder, series="all", file=lambda name: folder / name, until=lambda: ends[-1])
    all_of(made)
    assert (made.number, runs_of(uri).keys()) == (0, {"tiny"})
    ends.append((folder / "study.log").stat().st_size)
    all_of(made)
    assert (made.number, runs_of(uri).keys()) == (1, {"tiny", ATTEMPT})


@pytest.mark.parametrize(("kind", "steps"), [("all", [5, 10]), ("m_recall", [10])])
def test_the_total_of_a_series_is_there_once(
    uri: str, folder: Path, export: Callable[..., MlflowExport], kind: str, steps: list[int]
) -> None:
    curve = tuple(point(step, metrics={"load_seconds": 0.5 * step}) for step in (5, 10))
    write(folder, OPENED, BEGUN, Validated(ATTEMPT, curve, 4.0),
          Ended(ATTEMPT, "finished", {"load_seconds": 5.0, "steps": 10.0}, (), None, 10.0))
    all_of(export(kind))
    assert [step for step, _ in series(uri, runs_of(uri)[ATTEMPT], "load_seconds")] == steps


@pytest.mark.parametrize("kind", ["all", "m_recall"])
def test_every_chart_of_the_view_has_a_metric_that_is_there(
    uri: str, folder: Path, export: Callable[..., MlflowExport], kind: str
) -> None:
    measured = {"train_loss": 0.5, "gradient_norm": 1.0, "learning_rate": 1e-3, "pairs_per_second": 900.0,
                "train_seconds": 1.0, "device_seconds": 2.0}
    measured |= {f"{way}_r{k}": 10.0 * k for way in ("t2i", "i2t") for k in (1, 5, 10)}
    write(
        folder, OPENED, BEGUN, Validated(ATTEMPT, (point(1, metrics=measured),), 4.0),
        Ended(ATTEMPT, "finished", {"best_m_recall": 31.0, "epochs_to_best": 0.1}, (), None, 10.0),
    )
    all_of(export(kind))
    client = MlflowClient(uri)
    there = set(runs_of(uri)[ATTEMPT].data.metrics)
    shown = {chart["metricKey"] for chart in charts_view(kind)["compareRunCharts"] if not chart["deleted"]}
    assert shown <= there
    experiment = client.get_experiment_by_name("tiny")
    assert experiment is not None
    assert VIEW_TAG in experiment.tags


def test_validations_that_an_outage_kept_out_follow_when_the_store_answers_again(
    uri: str, folder: Path, export: Callable[..., MlflowExport]
) -> None:
    write(folder, OPENED, BEGUN)
    made = export()
    all_of(made)
    write(folder, Validated(ATTEMPT, CURVE, 4.0))
    with largest_file(0), refused("VSE-R027", by=StorageError):
        made.advance()
    all_of(made)
    assert series(uri, runs_of(uri)[ATTEMPT], "m_recall") == [(each.step, each.m_recall) for each in CURVE]


def test_an_attempt_whose_run_was_deleted_in_mlflow_costs_no_other_one_anything(
    uri: str, folder: Path, export: Callable[..., MlflowExport], caplog: pytest.LogCaptureFixture
) -> None:
    other = replace(BEGUN, start=start("vsepp.lmh-c001-s0"))
    write(folder, OPENED, BEGUN, other)
    made = export()
    all_of(made)
    MlflowClient(uri).delete_run(runs_of(uri)[ATTEMPT].info.run_id)
    for each in (ATTEMPT, attempt_of(other)):
        write(folder, Validated(each, CURVE, 4.0))
    for each in (ATTEMPT, attempt_of(other)):
        write(folder, Ended(each, "finished", {"best_m_recall": 35.0, "steps": 5.0}, (), None, 10.0))
    all_of(made)
    run = runs_of(uri)[attempt_of(other)]
    assert series(uri, run, "m_recall") == [(each.step, each.m_recall) for each in CURVE]
    assert run.info.status == "FINISHED"
    said = [record.getMessage() for record in caplog.records if record.name == "vsetune.records.mlflow_export"]
    assert len(said) == 2
    assert all("not in MLflow" in each and "Current state is deleted" in each for each in said), said


@pytest.mark.parametrize("taken_by", ["a person", "another home", "another configuration"])
def test_a_name_that_is_taken_there_stays_as_it_is_and_the_study_takes_another(
    uri: str, folder: Path, export: Callable[..., MlflowExport], caplog: pytest.LogCaptureFixture, taken_by: str
) -> None:
    client = MlflowClient(uri)
    if taken_by == "a person":
        client.create_experiment("tiny")
    else:
        fingerprint = OPENED.record.fingerprint if taken_by == "another home" else "ab12"
        write(folder, replace(OPENED, at=50.0, record=replace(OPENED.record, fingerprint=fingerprint)), BEGUN,
              Validated(ATTEMPT, CURVE[:2], 51.0), Ended(ATTEMPT, "finished", {}, (), None, 52.0),
              Closed("finished", (), 53.0))
        all_of(export())
        (folder / "study.log").unlink()
    before = everything(uri, "tiny")
    write(folder, OPENED, BEGUN, Validated(ATTEMPT, CURVE, 4.0), Closed("killed", (), 5.0))
    all_of(export())
    all_of(export())
    assert everything(uri, "tiny") == before
    (own,) = [each for each in client.search_experiments() if each.name.startswith("tiny-")]
    assert {points for (name, _), points in everything(uri, own.name).items() if name == ATTEMPT} == {tuple(
        (each.step, each.m_recall, 4000) for each in CURVE
    )}
    assert caplog.text.count(f"this one is {own.name}") == 1


def everything(uri: str, experiment: str) -> dict[tuple[str, str], tuple[tuple[int, float, int], ...]]:
    """Points of M-Recall of every run, by the run's name and id."""
    client = MlflowClient(uri)
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    return {
        (run.data.tags["vsetune.attempt"], run.info.run_id): tuple(
            (each.step, each.value, each.timestamp)
            for each in client.get_metric_history(run.info.run_id, "m_recall")
        ) for run in client.search_runs([found.experiment_id])
    }


def ended(name: str, at: float, status: str = "finished") -> Ended:
    return Ended(name, status, {"best_m_recall": 35.0, "steps": 5.0}, (), None, at)  # type: ignore[arg-type]


@pytest.mark.parametrize("lines", [2, 4, 8, 14], ids=lambda lines: f"{lines} lines left")
def test_after_a_restored_log_goes_on_mlflow_has_the_events_of_the_log_and_no_others(
    uri: str, folder: Path, export: Callable[..., MlflowExport], lines: int
) -> None:
    """An older copy of the log, or one without its end, is put back, and the study trains the rest again."""
    trials = [start(f"vsepp.lmh-c00{number}-s0") for number in range(3)]
    names = [attempt_id(each) for each in trials]

    def trained(number: int, at: float) -> list[Event]:
        points = [Validated(names[number], (each,), at + each.step) for each in CURVE]
        return [Begun(trials[number], at), *points, ended(names[number], at + 9)]

    write(folder, OPENED, *trained(0, 10.0)[:4])
    all_of(export())
    write(folder, *trained(0, 10.0)[4:], *trained(1, 30.0), Closed("finished", (), 50.0))
    all_of(export())
    log = folder / "study.log"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:lines]))
    write(folder, replace(OPENED, at=100.0), *trained(0, 110.0), *trained(1, 130.0), *trained(2, 150.0),
          Closed("finished", (), 170.0))
    all_of(export())
    wanted = {name: {} for name in names}
    for line in lines_of(log):
        if isinstance(event := line.event(), Validated):
            for each in event.points:
                wanted[event.attempt].setdefault((each.step, each.m_recall, round(1000 * event.at)))
    found = {name: points for (name, _), points in everything(uri, "tiny").items() if name != "tiny"}
    assert {name: sorted(points) for name, points in found.items()} == {
        name: sorted(points) for name, points in wanted.items()
    }
    for name in names[1:]:
        assert series(uri, runs_of(uri)[name], "best_m_recall") == [(5, 35.0)]
    assert export().differences() == []


@pytest.mark.parametrize("change", ["a lost tail", "an older copy", "other points", "nothing"])
def test_what_mlflow_has_otherwise_than_the_log_is_told_without_a_change(
    uri: str, folder: Path, export: Callable[..., MlflowExport], change: str
) -> None:
    other = start("vsepp.lmh-c001-s0")
    write(folder, OPENED, BEGUN, Validated(ATTEMPT, CURVE, 4.0), ended(ATTEMPT, 9.0), Begun(other, 10.0),
          ended(attempt_id(other), 11.0), Closed("finished", (), 12.0))
    all_of(export())
    before, log = everything(uri, "tiny"), folder / "study.log"
    kept = log.read_bytes().splitlines(keepends=True)
    told = {
        "a lost tail": ["1 events are not in MLflow"], "nothing": [],
        "an older copy": ["MLflow has other events of tiny", f"MLflow has {attempt_id(other)}, which the log lacks"],
        "other points": [f"MLflow has other events of {ATTEMPT}"],
    }[change]
    if change == "an older copy":
        log.write_bytes(b"".join(kept[:4]))
    elif change == "a lost tail":
        write(folder, replace(OPENED, at=20.0))
    elif change == "other points":
        log.write_bytes(b"".join(kept[:2]))
        write(folder, Validated(ATTEMPT, CURVE, 5.0), ended(ATTEMPT, 9.0), Begun(other, 10.0),
              ended(attempt_id(other), 11.0), Closed("finished", (), 12.0))
    assert export().differences() == told
    assert everything(uri, "tiny") == before


def test_an_export_of_an_earlier_version_goes_on_as_ours(
    uri: str, folder: Path, export: Callable[..., MlflowExport]
) -> None:
    """It has no tag of its log and none of its events; another log's one stays another's."""
    write(folder, OPENED, BEGUN, Validated(ATTEMPT, CURVE, 4.0), ended(ATTEMPT, 9.0), Closed("finished", (), 12.0))
    all_of(export())
    before, client = everything(uri, "tiny"), MlflowClient(uri)
    experiment = client.get_experiment_by_name("tiny").experiment_id
    client.delete_experiment_tag(experiment, "vsetune.log")
    for run in client.search_runs([experiment]):
        client.delete_tag(run.info.run_id, "vsetune.events")
    all_of(export())
    assert everything(uri, "tiny") == before
    assert series(uri, runs_of(uri)[ATTEMPT], "best_m_recall") == [(5, 35.0)]
    client.log_metric(runs_of(uri)[ATTEMPT].info.run_id, "m_recall", 31.0, 77_000, 1)  # as it doubled points
    client.delete_tag(runs_of(uri)[ATTEMPT].info.run_id, "vsetune.events")
    all_of(export())
    assert sorted(points for points in everything(uri, "tiny").values()) == sorted(before.values())


def test_an_event_that_mlflow_refuses_is_told_and_tried_again(
    uri: str, folder: Path, export: Callable[..., MlflowExport]
) -> None:
    write(folder, OPENED, BEGUN)
    made = export()
    all_of(made)
    client, run = MlflowClient(uri), runs_of(uri)[ATTEMPT].info.run_id
    client.delete_run(run)
    write(folder, Validated(ATTEMPT, CURVE, 4.0), ended(ATTEMPT, 9.0))
    all_of(made)
    assert [line.partition(": ")[0] for line in made.refused] == [f"{ATTEMPT} (line {n} of the log)" for n in (2, 3)]
    assert len(read_json(folder / "mlflow.json")["refused"]) == 2
    client.restore_run(run)
    again = export()
    assert again.differences() == ["2 events are not in MLflow"]
    all_of(again)
    assert (again.refused, export().differences()) == ([], [])
    assert series(uri, runs_of(uri)[ATTEMPT], "m_recall") == [(each.step, each.m_recall) for each in CURVE]
    assert runs_of(uri)[ATTEMPT].info.status == "FINISHED"
