"""`vsetune tracking export`, `import` and `doctor` as commands: what they say, exit codes, the search that moves."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from vsetune.tracking import AttemptStart, StudyRecord, ValidationPoint, open_store


@pytest.fixture
def recorded(home: Path) -> Path:
    """A study with two attempts and a search, as a driver leaves them; its folder."""
    store = open_store(f"sqlite:///{home / 'mlflow.db'}", None)
    store.open_study(StudyRecord("tiny", "f00d", {"study": "tiny", "baseline": "lmh"}), resume=False)
    for seed in range(2):
        start = AttemptStart("tiny", f"t{seed}", "vsepp.lmh", "vsepp", "lmh", 1, seed, "search", {}, {})
        run = store.start_attempt(start)
        store.record_points(run, [ValidationPoint(step, step / 20, 64 * step, 50 + step, 2.0) for step in (10, 20)])
        store.finish_attempt(run, "pruned", {"best_m_recall": 70.0}, [], None)
    folder = home / "runs" / "tiny"
    folder.mkdir(parents=True)
    with closing(sqlite3.connect(folder / "search.db")) as search, search:
        search.execute("PRAGMA journal_mode=WAL")
        search.execute("CREATE TABLE trials (number INTEGER)")
        search.execute("INSERT INTO trials VALUES (7)")
    return folder


def test_a_moved_study_has_the_same_board_and_its_search(vsetune, recorded, home, tmp_path, monkeypatch):
    file = tmp_path / "tiny.zip"
    done = vsetune("tracking", "export", "tiny", "--to", str(file))
    assert (done.code, done.out, done.err) == (0, f"tiny: 3 runs in {file}, the search with it\n", "")
    board = vsetune("leaderboard", "export", "tiny", "--csv", str(tmp_path / "before.csv"))
    assert board.code == 0
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path / "elsewhere"))
    brought = vsetune("tracking", "import", str(file))
    folder = tmp_path / "elsewhere" / "runs" / "tiny"
    assert (brought.code, brought.out) == (0, "tiny: 3 runs brought, 0 completed, 0 were there\n")
    assert brought.err == f"its search is in {folder}; go on with `vsetune study run FILE --resume`\n"
    again = vsetune("tracking", "import", str(file))
    assert (again.code, again.out, again.err) == (0, "tiny: 0 runs brought, 0 completed, 3 were there\n", "")
    vsetune("leaderboard", "export", "tiny", "--csv", str(tmp_path / "after.csv"))
    assert (tmp_path / "after.csv").read_text() == (tmp_path / "before.csv").read_text()
    with closing(sqlite3.connect(folder / "search.db")) as search:
        assert search.execute("SELECT number FROM trials").fetchall() == [(7,)]
    taken = vsetune("tracking", "export", "tiny", "--to", str(file))
    assert (taken.code, taken.lines) == (2, [f"error {file}: exists already; name another place, or remove it"])
    none = vsetune("tracking", "import", str(tmp_path / "none.zip"))
    assert (none.code, len(none.lines)) == (2, 1)


def test_the_doctor_tells_in_lines_mends_when_asked_and_says_by_its_exit_code_what_is_left(vsetune, recorded, home):
    sound = vsetune("tracking", "doctor", "tiny")
    assert (sound.code, sound.out, sound.err) == (0, "", "1 study examined: 0 findings, 0 mended, 0 left\n")
    with closing(sqlite3.connect(home / "mlflow.db")) as database, database:
        database.execute("UPDATE runs SET status = 'RUNNING' WHERE name = 't1'")
    told = vsetune("tracking", "doctor")
    assert (told.code, told.out.count("\n")) == (1, 1)
    assert "(t1): ended as pruned, and MLflow shows RUNNING; --mend: sets MLflow's status" in told.out
    plain = vsetune("tracking", "doctor", "--json")
    assert [(each["can_mend"], each["is_mended"]) for each in json.loads(plain.out)] == [(True, False)]
    mended = vsetune("tracking", "doctor", "--mend")
    assert (mended.code, mended.out.split(":")[0]) == (0, "mended")
    assert vsetune("tracking", "doctor").code == 0
    unknown = vsetune("tracking", "doctor", "nowhere")
    assert (unknown.code, len(unknown.lines)) == (2, 1)


def test_a_study_from_somebody_else_comes_to_the_own_home_alone(vsetune, recorded, home, tmp_path, monkeypatch):
    anywhere = tmp_path / "anywhere"
    config = {"study": "evil", "baseline": "lmh", "tracking": {"folder": str(anywhere)}}
    open_store(f"sqlite:///{home / 'mlflow.db'}", None).open_study(StudyRecord("evil", "f00d", config), resume=False)
    (anywhere / "evil").mkdir(parents=True)
    (recorded / "search.db").rename(anywhere / "evil" / "search.db")
    assert vsetune("tracking", "export", "evil", "--to", str(tmp_path / "evil")).code == 0
    (anywhere / "evil" / "search.db").unlink()
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path / "elsewhere"))
    assert vsetune("tracking", "import", str(tmp_path / "evil")).code == 0
    assert (tmp_path / "elsewhere" / "runs" / "evil" / "search.db").is_file()
    assert not (anywhere / "evil" / "search.db").exists()


def test_an_export_that_is_refused_is_one_line_and_leaves_no_store(vsetune, recorded, home, tmp_path, monkeypatch):
    assert vsetune("tracking", "export", "tiny", "--to", str(tmp_path / "tiny")).code == 0
    header = json.loads((tmp_path / "tiny" / "study.json").read_text())
    (tmp_path / "tiny" / "study.json").write_text(json.dumps(header | {"study": "../../../evil"}))
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path / "elsewhere"))
    said = vsetune("tracking", "import", str(tmp_path / "tiny"))
    assert (said.code, len(said.lines)) == (2, 1)
    assert said.lines[0].startswith(f"error {tmp_path / 'tiny'}: study.json: study: ")
    assert not (tmp_path / "elsewhere").exists()
