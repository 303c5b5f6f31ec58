"""`vsetune tracking export`, `import` and `doctor` as commands: what they print, and their exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from studied import RECORD, point, start

from vsetune.records.log import LOG_FILE
from vsetune.records.study_lock import locked_study
from vsetune.records.writer import StudyWriter

pytestmark = pytest.mark.filterwarnings("default")  # MLflow's dependencies warn about themselves


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


def test_a_moved_study_has_the_same_board(
    vsetune: Any, recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    taken = vsetune("tracking", "export", "tiny", "--to", str(file))
    assert (taken.code, len(taken.lines)) == (2, 1)
    assert taken.lines[0].startswith(f"error VSE-R019: {file}: exists already")
    none = vsetune("tracking", "import", str(tmp_path / "none.zip"))
    assert (none.code, len(none.lines)) == (2, 1)
    unknown = vsetune("tracking", "export", "tiyn", "--to", str(tmp_path / "unknown.zip"))
    assert (unknown.code, len(unknown.lines)) == (2, 1)
    assert not (tmp_path / "unknown.zip").exists()


def test_a_study_comes_home_from_the_mlflow_that_it_was_exported_to(
    vsetune: Any, recorded: Path, mlflow_here: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    unknown = vsetune("tracking", "import", "tiyn", "--tracking-uri", mlflow_here)
    assert (unknown.code, len(unknown.lines)) == (2, 1)
    assert "study tiyn: is not in sqlite:///" in unknown.err
    none = vsetune("tracking", "import", "tiny", "--tracking-uri", "none")
    assert (none.code, none.lines) == (2, ["error --tracking-uri: got none, need the address of an MLflow"])


def test_a_study_that_runs_is_exported_with_a_warning(vsetune: Any, recorded: Path, tmp_path: Path) -> None:
    text = (recorded / LOG_FILE).read_bytes()
    (recorded / LOG_FILE).write_bytes(text[: text.rindex(b"\n", 0, -1) + 1])  # before its driver has left
    with locked_study(recorded):
        said = vsetune("tracking", "export", "tiny", "--to", str(tmp_path / "tiny.zip"))
    assert said.code == 0
    assert said.lines == [
        "warning: the study is running and the export has it as it was; export it again when it has ended"
    ]


def test_the_doctor_names_what_is_wrong_in_lines_and_by_its_exit_code(
    vsetune: Any, recorded: Path, mlflow_here: str
) -> None:
    sound = vsetune("tracking", "doctor", "tiny")
    assert (sound.code, sound.out, sound.err) == (0, "", "1 study examined: 0 findings\n")
    weights = recorded / "trials" / "vsepp.lmh-c000-s0" / "best.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:3])
    how = "put back a copy, such as the run's artifact in MLflow, or train the trial again"
    told = vsetune("tracking", "doctor")
    assert (told.code, told.err) == (1, "1 study examined: 1 finding\n")
    assert told.out == f"attempt tiny/vsepp.lmh-c000-s0/1: {weights} is damaged (cut short at 3 bytes); {how}\n"
    weights.unlink()
    plain = vsetune("tracking", "doctor", "--json")
    assert json.loads(plain.out) == [
        {"where": "attempt tiny/vsepp.lmh-c000-s0/1", "what": "its best weights are gone", "how": how}
    ]
    weights.write_bytes(content)
    assert vsetune("tracking", "doctor").code == 0
    unknown = vsetune("tracking", "doctor", "nowhere")
    assert (unknown.code, len(unknown.lines)) == (2, 1)


def test_the_doctor_names_events_that_mlflow_does_not_have_and_a_damaged_log(
    vsetune: Any, opened: Callable[..., StudyWriter], recorded: Path, mlflow_here: str
) -> None:
    assert vsetune("tracking", "flush", "tiny").code == 0
    assert vsetune("tracking", "doctor").code == 0
    note = json.loads((recorded / "mlflow.json").read_text())
    (recorded / "mlflow.json").write_text(json.dumps(note | {"number": note["number"] - 2}))
    told = vsetune("tracking", "doctor")
    assert (told.code, told.out) == (1, "study tiny: 2 events are not in MLflow; vsetune tracking flush tiny\n")
    log = recorded / LOG_FILE
    log.write_bytes(log.read_bytes().replace(b'"lmh"', b'"lhm"', 1))
    told = vsetune("tracking", "doctor", "--json")
    (found,) = json.loads(told.out)
    assert (found["where"], found["what"]) == ("study tiny", f"{log}: damaged at byte 0")
    assert "put back a copy of the study's folder, or bring the study home from its MLflow server" in found["how"]


def test_an_export_that_is_refused_is_one_line_and_leaves_no_study(
    vsetune: Any, recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert vsetune("tracking", "export", "tiny", "--to", str(tmp_path / "tiny")).code == 0
    header = json.loads((tmp_path / "tiny" / "export.json").read_text())
    (tmp_path / "tiny" / "export.json").write_text(json.dumps(header | {"study": "../../../evil"}))
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path / "elsewhere"))
    said = vsetune("tracking", "import", str(tmp_path / "tiny"))
    assert (said.code, len(said.lines)) == (2, 1)
    assert said.lines[0].startswith(f"error VSE-R014: {tmp_path / 'tiny'}: no export of a study (export.json: study: ")
    assert not (tmp_path / "elsewhere").exists()
