"""`vsetune tracking flush`, `export`, `import` and `doctor` as commands: what they print, and their exit codes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from mlflow import MlflowClient
from studied import RECORD, point, start

from vsetune.cli import tracking
from vsetune.records.log import LOG_FILE
from vsetune.records.studies import Studies
from vsetune.records.study_lock import locked_study
from vsetune.records.writer import StudyWriter

pytestmark = pytest.mark.filterwarnings("default")  # MLflow's dependencies warn about themselves


@pytest.fixture
def waiting(opened: Callable[..., StudyWriter], home: Path) -> Path:
    """The folder of the study `tiny`, whose four events nothing has exported."""
    writer = opened(RECORD)
    attempt = writer.start_attempt(start())
    writer.record_points(attempt, [point(10, m_recall=51.5)])
    writer.finish_attempt(attempt, "finished", summary={"best_m_recall": 51.5}, error=None)
    return home / "runs" / "tiny"


def test_what_waits_is_exported_once_whether_the_study_or_its_file_is_named(
    vsetune, study, waiting, mlflow_here
) -> None:
    done = vsetune("tracking", "flush", str(study()))
    assert (done.code, done.out, done.err) == (0, "tiny: 0 events left\n", "")
    again = vsetune("tracking", "flush", "tiny")
    assert (again.code, again.out) == (0, "tiny: 0 events left\n")
    experiment, runs = Studies().in_mlflow("tiny")
    client = MlflowClient(mlflow_here)
    assert len(client.search_runs([experiment])) == 2
    (history,) = client.get_metric_history(runs["tiny/vsepp.lmh-c000-s0/1"], "m_recall")
    assert (history.step, history.value) == (10, 51.5)


def test_a_store_that_is_still_away_leaves_everything_where_it_is(vsetune, waiting, monkeypatch) -> None:
    monkeypatch.setattr(tracking, "_PATIENCE_S", 1.0)
    before = (waiting / "study.log").read_bytes()
    said = vsetune("tracking", "flush", "tiny", "--tracking-uri", "http://user:secret@127.0.0.1:9")
    assert (said.code, said.out.count("\n")) == (1, 1)
    assert said.out.startswith("tiny: 4 events left: ")
    assert "127.0.0.1:9" in said.out
    assert "secret" not in said.out + said.err
    assert (waiting / "study.log").read_bytes() == before


def test_a_study_that_runs_is_exported_by_its_driver(vsetune, waiting, mlflow_here) -> None:
    with locked_study(waiting):
        assert vsetune("tracking", "flush", "tiny").refused("study tiny")


def test_a_study_without_a_log_or_without_an_mlflow_is_named(vsetune, study, waiting, home) -> None:
    assert vsetune("tracking", "flush", "tiny").refused("study tiny", "--tracking-uri", "MLFLOW_TRACKING_URI")
    shutil.rmtree(home / "runs")
    for word in ("tiny", str(study())):
        assert vsetune("tracking", "flush", word).refused("study tiny", str(home))


def test_the_file_of_a_study_says_to_which_mlflow(vsetune, waiting, study, tmp_path) -> None:
    file = study()
    elsewhere = f"sqlite:///{tmp_path / 'elsewhere.db'}"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"tracking": {"uri": elsewhere}}))
    assert vsetune("tracking", "flush", str(file)).code == 0
    assert MlflowClient(elsewhere).get_experiment_by_name("tiny") is not None


@pytest.fixture
def recorded(opened: Callable[..., StudyWriter], home: Path) -> Path:
    """The folder of a study with two attempts, one of them with weights, as a driver leaves it."""
    writer = opened(RECORD)
    for trial, status in (("vsepp.lmh-c000-s0", "pruned"), ("vsepp.lmh-c001-s0", "failed")):
        attempt = writer.start_attempt(start(trial))
        writer.record_points(attempt, [point(10), point(20, m_recall=50.0)])
        writer.finish_attempt(attempt, status, summary={"best_m_recall": 50.0}, error=None)  # type: ignore[arg-type]
    writer.finish_study("finished")
    weights = home / "runs" / "tiny" / "trials" / "vsepp.lmh-c000-s0" / "best.safetensors"
    weights.parent.mkdir(parents=True)
    weights.write_bytes((2).to_bytes(8, "little") + b"{}")
    return home / "runs" / "tiny"


def test_a_moved_study_has_the_same_board(vsetune, recorded, tmp_path, monkeypatch) -> None:
    file = tmp_path / "tiny.zip"
    done = vsetune("tracking", "export", "tiny", "--to", str(file))
    assert (done.code, done.out, done.err) == (0, f"tiny: 2 files in {file}\n", "")
    assert vsetune("leaderboard", "export", "tiny", "--csv", str(tmp_path / "before.csv")).code == 0
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path / "elsewhere"))
    brought = vsetune("tracking", "import", str(file))
    assert (brought.code, brought.out, brought.err) == (0, "tiny: 2 files brought\n", "")
    again = vsetune("tracking", "import", str(file))
    assert (again.code, again.out, again.err) == (0, "tiny: 0 files brought\n", "")
    assert vsetune("leaderboard", "export", "tiny", "--csv", str(tmp_path / "after.csv")).code == 0
    assert (tmp_path / "after.csv").read_text() == (tmp_path / "before.csv").read_text()
    assert vsetune("tracking", "export", "tiny", "--to", str(file)).refused(f"{file}: ")
    assert vsetune("tracking", "import", str(tmp_path / "none.zip")).refused("none.zip")
    assert vsetune("tracking", "export", "tiyn", "--to", str(tmp_path / "unknown.zip")).refused("tiyn", "tiny")
    assert not (tmp_path / "unknown.zip").exists()


def test_a_study_comes_home_from_the_mlflow_that_it_was_exported_to(
    vsetune, recorded, mlflow_here, tmp_path, monkeypatch
) -> None:
    assert vsetune("tracking", "flush", "tiny").code == 0
    before = vsetune("leaderboard", "show", "tiny")
    assert before.code == 0
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path / "elsewhere"))
    brought = vsetune("tracking", "import", "tiny", "--tracking-uri", mlflow_here)
    assert (brought.code, brought.out, brought.err) == (0, "tiny: 1 file brought\n", "")
    assert vsetune("leaderboard", "show", "tiny").out == before.out
    again = vsetune("tracking", "import", "tiny", "--tracking-uri", mlflow_here)
    assert (again.code, again.out) == (0, "tiny: 0 files brought\n")
    assert vsetune("tracking", "import", "tiyn", "--tracking-uri", mlflow_here).refused("tiyn", "sqlite:///")
    said = vsetune("tracking", "import", "tiny", "--tracking-uri", "none")
    assert said.refused("VSE-X002", "--tracking-uri: ", "none")


def test_a_study_that_runs_is_exported_with_a_warning(vsetune, recorded, tmp_path) -> None:
    text = (recorded / LOG_FILE).read_bytes()
    (recorded / LOG_FILE).write_bytes(text[: text.rindex(b"\n", 0, -1) + 1])  # before its driver has left
    with locked_study(recorded):
        said = vsetune("tracking", "export", "tiny", "--to", str(tmp_path / "tiny.zip"))
    assert (said.code, len(said.lines)) == (0, 1)
    assert said.lines[0].startswith("warning VSE-X036: study tiny: ")


def test_the_doctor_names_what_is_wrong_in_lines_and_by_its_exit_code(vsetune, recorded, mlflow_here) -> None:
    sound = vsetune("tracking", "doctor", "tiny")
    assert (sound.code, sound.out, sound.err) == (0, "", "1 study examined: 0 findings\n")
    weights = recorded / "trials" / "vsepp.lmh-c000-s0" / "best.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:3])
    found = vsetune("tracking", "doctor")
    assert (found.code, found.err) == (1, "1 study examined: 1 finding\n")
    assert found.out.count("\n") == 1
    assert found.out.startswith("attempt tiny/vsepp.lmh-c000-s0/1: ")
    assert str(weights) in found.out
    weights.unlink()
    (plain,) = json.loads(vsetune("tracking", "doctor", "--json").out)
    assert (plain["where"], plain.keys()) == ("attempt tiny/vsepp.lmh-c000-s0/1", {"where", "what", "how"})
    weights.write_bytes(content)
    assert vsetune("tracking", "doctor").code == 0
    assert vsetune("tracking", "doctor", "nowhere").refused("nowhere", "tiny")


def test_the_doctor_names_events_that_mlflow_does_not_have_and_a_damaged_log(
    vsetune, opened, recorded, mlflow_here
) -> None:
    assert vsetune("tracking", "flush", "tiny").code == 0
    assert vsetune("tracking", "doctor").code == 0
    whole = (recorded / LOG_FILE).read_bytes()
    (recorded / LOG_FILE).write_bytes(b"".join(whole.splitlines(keepends=True)[:4]))
    (other, unknown) = json.loads(vsetune("tracking", "doctor", "--json").out)
    assert (other["what"], unknown["what"]) == (
        "MLflow has other events of tiny", "MLflow has tiny/vsepp.lmh-c001-s0/1, which the log lacks"
    )
    assert "import --tracking-uri URI tiny" in unknown["how"]
    (recorded / LOG_FILE).write_bytes(whole)
    MlflowClient(mlflow_here).delete_run(Studies().in_mlflow("tiny")[1]["tiny/vsepp.lmh-c000-s0/1"])
    found = vsetune("tracking", "doctor")
    assert (found.code, found.out.count("\n")) == (1, 1)
    assert found.out.startswith("study tiny: 3 events ")
    assert "vsetune tracking flush tiny" in found.out
    log = recorded / LOG_FILE
    log.write_bytes(log.read_bytes().replace(b'"lmh"', b'"lhm"', 1))
    (found,) = json.loads(vsetune("tracking", "doctor", "--json").out)
    assert found["where"] == "study tiny"
    assert f"{log}: " in found["what"]


def test_an_export_that_is_refused_is_one_line_and_leaves_no_study(vsetune, recorded, tmp_path, monkeypatch) -> None:
    assert vsetune("tracking", "export", "tiny", "--to", str(tmp_path / "tiny")).code == 0
    header = json.loads((tmp_path / "tiny" / "export.json").read_text())
    (tmp_path / "tiny" / "export.json").write_text(json.dumps(header | {"study": "../../../evil"}))
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path / "elsewhere"))
    assert vsetune("tracking", "import", str(tmp_path / "tiny")).refused(str(tmp_path / "tiny"), "export.json")
    assert not (tmp_path / "elsewhere").exists()
