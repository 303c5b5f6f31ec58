"""`vsetune leaderboard show A B`, `show --all` and `table`: over several studies of a home."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from vsetune.records.events import AttemptStart, StudyRecord, ValidationPoint
from vsetune.records.studies import Studies
from vsetune.records.writer import StudyWriter


@pytest.fixture
def recorded(opened: Callable[[StudyRecord], StudyWriter]) -> Callable[[str, str, dict[str, float]], None]:
    """recorded(study, network, bests): a study of one network, a seed of each loss; bests: M-Recall by loss, at its
    second of three validations."""

    def record(study: str, network: str, bests: dict[str, float]) -> None:
        writer = opened(StudyRecord(study, study, {"baseline": "lmh"}))
        for loss, best in bests.items():
            run = writer.start_attempt(AttemptStart(
                study=study, trial=f"{network}.{loss}-c000-s1", cell=f"{network}.{loss}", network=network, loss=loss,
                number=1, seed=1, phase="confirm", configuration={}, resolved={"network": {"name": network}},
                protocol={"dataset": "flickr30k", "images": 8},
            ))
            writer.record_points(run, [
                ValidationPoint(step, 0.5 * step, 10 * step, best - abs(step - 2), 1.0) for step in (1, 2, 3)
            ])
            writer.finish_attempt(run, "finished", summary={}, error=None)

    return record


@pytest.fixture
def two(recorded: Callable[[str, str, dict[str, float]], None]) -> None:
    """LMH in one study, LSEH in another, on one data set; nothing of it was trained."""
    recorded("first", "vsepp", {"lmh": 60.0})
    recorded("second", "vsepp", {"lseh": 62.0})


def test_studies_that_compare_share_a_board_and_a_table_of_a_paper(vsetune, two) -> None:
    said = vsetune("leaderboard", "show", "first", "second")
    assert (said.code, said.err) == (0, "")
    assert "first + second: losses compared with lmh" in said.out
    every = json.loads(vsetune("leaderboard", "show", "--all", "--json").out)
    assert [[row["loss"] for row in board["rows"]] for board in every["boards"]] == [["lmh", "lseh"]]
    said = vsetune("leaderboard", "table", "lseh_table3", "first", "second", "--format", "csv")
    assert said.code == 0, said.err
    line = "lseh_table3,Flickr30K,flickr30k,VSE++,Comparison of LMH1 and LSEH,Difference,measured,1,-0.5,-50.0,"
    assert line in said.out
    said = vsetune("leaderboard", "table", "lseh_table3", "--as", "LMH2=lmh")
    assert "−0.5 (−50.0%)" in said.out


def test_the_studies_of_a_home_are_listed_at_most_once_for_a_board(vsetune, two, monkeypatch) -> None:
    listed, studies = [], Studies.studies
    monkeypatch.setattr(Studies, "studies", lambda home: listed.append(home) or studies(home))
    for words in (("show", "first", "second"), ("show", "--all"), ("show", "first"), ("table", "lseh_table3")):
        listed.clear()
        assert vsetune("leaderboard", *words).code == 0
        assert len(listed) == ("first" not in words), words


def test_several_studies_are_written_as_they_are_shown(vsetune, two, tmp_path) -> None:
    kinds = ("html", "csv", "json", "markdown", "latex", "curves")
    files = {kind: tmp_path / "made" / f"board.{kind}" for kind in kinds}
    options = [word for kind, file in files.items() for word in (f"--{kind}", str(file))]
    said = vsetune("leaderboard", "export", "first", "second", *options)
    assert said.code == 0, said.err
    shown = vsetune("leaderboard", "show", "first", "second", "--json").out
    assert json.loads(files["json"].read_text()) == json.loads(shown)
    assert "<h1>first + second</h1>" in files["html"].read_text()
    assert files["csv"].read_text().startswith("board,study,dataset,")
    assert r"\begin{table}" in files["latex"].read_text()
    assert len(files["curves"].read_text().splitlines()) == 1 + 6
    said = vsetune("leaderboard", "export", "--all", "--markdown", str(tmp_path / "all.md"))
    assert said.code == 0, said.err
    assert (tmp_path / "all.md").read_text() == files["markdown"].read_text()


@pytest.mark.parametrize("studies", [["first", "second"], ["--all"]])
def test_the_share_of_the_target_is_an_option(vsetune, two, tmp_path, studies) -> None:
    for share in (None, 0.8):
        words = [*studies, *([] if share is None else ["--target-share", str(share)])]
        (board,) = json.loads(vsetune("leaderboard", "show", *words, "--json").out)["boards"]
        assert board["rows"][1]["comparison"]["epochs"]["share"] == (share or 0.95)
        said = vsetune("leaderboard", "export", *words, "--json", str(tmp_path / "board.json"))
        assert said.code == 0, said.err
        assert json.loads((tmp_path / "board.json").read_text())["boards"] == [board]


@pytest.mark.parametrize(("words", "said"), [
    (("export",), ("VSE-X002", "leaderboard export: ", "no names", "--all")),
    (("show",), ("VSE-X002", "leaderboard show: ", "--all")),
    (("show", "first", "--all"), ("VSE-X002", "leaderboard show: ", "names and --all")),
    (("show", "first", "--target-share", "95"), ("VSE-X002", "--target-share: ", "95")),
    (("export", "first", "--target-share", "nan"), ("VSE-X002", "--target-share: ", "nan")),
    (("serve", "first", "--target-share", "0"), ("VSE-X002", "--target-share: ", "0")),
    (("serve", "first", "--port", "70000"), ("VSE-X002", "--port: ", "70000")),
    (("serve", "first", "--host", "192.0.2.1", "--port", "0"), ("192.0.2.1",)),
    (("serve", "first", "--mlflow", "ftp://host"), ("--mlflow: ",)),
    (("serve", "none_such"), ("none_such", "first")),
    (("show", "first", "secnd"), ("secnd",)),
    (("show", "first", "second", "--baseline", "lsh"), ("VSE-X031", "lsh", "lmh, lseh")),
    (("table", "lseh_tabel3", "first"), ("lseh_tabel3", "lseh_table3")),
    (("table", "lseh_table3", "--as", "x"), ("VSE-X002", "--as", "PAPER=OURS")),
])
def test_what_cannot_be_shown_is_refused_in_one_line(vsetune, two, words, said) -> None:
    assert vsetune(*words if words[0] == "serve" else ("leaderboard", *words)).refused(*said)


def test_a_study_whose_record_names_no_baseline_needs_one(vsetune, opened) -> None:
    """Early versions recorded none."""
    store = opened(StudyRecord("old", "ab" * 32, {"study": "old"}))
    run = store.start_attempt(AttemptStart(
        study="old", trial="vsepp.lmh-c000-s0", cell="vsepp.lmh", network="vsepp", loss="lmh", number=1, seed=0,
        phase="search", configuration={}, resolved={}, environment={}, protocol={"images": 8},
    ))
    store.record_points(run, [ValidationPoint(1, 1.0, 8, 50.0, 1.0)])
    store.finish_attempt(run, "finished", summary={}, error=None)
    assert vsetune("leaderboard", "show", "old").refused("VSE-S192", "study old", "--baseline")
    assert vsetune("leaderboard", "show", "old", "--baseline", "lmh").code == 0
