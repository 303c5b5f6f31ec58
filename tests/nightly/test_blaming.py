"""From a sweep, its history and a measure to the commit: what is chosen, what is refused, what goes on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from git_folders import committed, git
from night_files import night_of_day
from refusals import refused

from vsetune.errors import DataError, StudyConflict, UsageError
from vsetune.nightly import messages
from vsetune.nightly.bisecting import Bisected, CannotRun, NoDifference, Tried
from vsetune.nightly.blaming import Notes, Question, answerable, search
from vsetune.nightly.history import History
from vsetune.nightly.night import BY_NAME, NightReport, ReportRow
from vsetune.nightly.nightly_spec import load_nightly
from vsetune.nightly.revisions import Repository
from vsetune.storage.locks import take_lock

SWEEP = {
    "nightly": "tiny", "data": {"path": "data/tiny", "scenes": {"train": 20, "validation": 8, "test": 8}},
    "networks": [{"name": "vsepp"}], "losses": [{"name": "lmh"}, {"name": "lsh"}],
}
MEASURE_ONCE = """\
import json, os, pathlib, sys
log = pathlib.Path(os.environ["PROBE_LOG"])
log.write_text(log.read_text() + f"NUMBER {' '.join(sys.argv[2:])}\\n")
if "--first-losses" in sys.argv:
    lmh = {"losses": [1.0], "recalls": {"r": 2.5}, "step_time": TIME}
    print(json.dumps({"vsepp.lmh": lmh, "vsepp.lsh": {"losses": [LOSS]}}))
else:
    seed = int(sys.argv[-1])
    print(json.dumps({"values": {"epoch_time": TIME * (1 + seed / 1000), "best_m_recall": 40.0 + seed - (LOSS - 1.0)}}))
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What was run: the number of the revision and the words, line by line."""
    (tmp_path / "log").write_text("")
    monkeypatch.setenv("PROBE_LOG", str(tmp_path / "log"))
    return tmp_path / "log"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight commits: with number 3 losses change and recall falls by 3, number 6 makes everything a fifth slower."""
    root = tmp_path_factory.mktemp("written")
    room = root / "platform" / "vsetune" / "nightly"
    room.mkdir(parents=True)
    for folder in (room, room.parent):
        (folder / "__init__.py").write_text("")
    git(root, "init", "--quiet", "--initial-branch=main")
    for number in range(8):
        text = MEASURE_ONCE.replace("NUMBER", str(number))
        text = text.replace("LOSS", "4.0" if number >= 3 else "1.0").replace("TIME", "12.0" if number >= 6 else "10.0")
        committed(root, "platform/vsetune/nightly/measure_once.py", text, f"Change {number}")
    return root


@pytest.fixture
def repository(written: Path, tmp_path: Path, log: Path) -> Repository:
    """A copy of it for each test."""
    shutil.copytree(written, tmp_path / "repository")
    return Repository(tmp_path / "repository" / "platform" / "vsetune")


@pytest.fixture
def revisions(repository: Repository) -> Sequence[str]:
    return git(repository.root, "rev-list", "--reverse", "HEAD").split()


@pytest.fixture
def ask(tmp_path: Path, repository: Repository) -> Callable[..., Bisected]:
    """ask(measure, **of Question): the whole of it, as the command does it."""
    file = tmp_path / "nightly.yaml"
    file.write_text(yaml.safe_dump(SWEEP))

    def run(measure: str, tell: Callable[[Tried, int], None] = lambda tried, left: None, **given: Any) -> Bisected:
        spec, history = load_nightly(file), History(tmp_path / "history")
        question = replace(Question(file, measure, None, None, None, 3), **given)
        asked = answerable(question, spec, history, repository)
        return search(asked, spec, tmp_path / "history" / "bisect", repository, say=lambda line: None, tell=tell)

    return run


def keep(folder: Path, day: int, revision: str, rows: Sequence[ReportRow] = ()) -> None:
    """A night of January 2026 and its report."""
    night, history = night_of_day(day, revision=revision), History(folder / "history")
    history.keep(night)
    history.keep_report(
        NightReport("tiny", night.date, revision, 1 if rows else 0, "", (), rows, "", 7, 7, "", ""), "", ""
    )


def row(cell: str, measure: str, since: str, change: float) -> ReportRow:
    return ReportRow(cell, BY_NAME[measure], "regression", (), (), None, change=change, since=since)


def test_the_commit_that_changed_the_losses_is_found_and_nothing_is_left_behind(
    ask: Callable[..., Bisected], revisions: Sequence[str], repository: Repository, tmp_path: Path
) -> None:
    found = ask("first_losses", good=revisions[0])
    assert [commit.subject for commit in found.suspects] == ["Change 3"]
    assert found.bad.text == "vsepp.lsh: loss of step 1 is 4.0 instead of 1.0"
    assert git(repository.root, "worktree", "list").count("\n") == 0
    (place,) = (each for each in (tmp_path / "history" / "bisect").iterdir())
    assert {each.name for each in place.iterdir()} == {"lock", "notes.json", "trees"}
    notes = json.loads((place / "notes.json").read_text())
    assert notes["losses"][revisions[0]]["recalls of vsepp.lmh"] == [2.5]
    assert list((place / "trees").iterdir()) == []


def test_a_slower_step_is_found_without_training_a_trial(
    ask: Callable[..., Bisected], revisions: Sequence[str], log: Path
) -> None:
    found = ask("step_time", cell="vsepp.lmh", good=revisions[0])
    assert [commit.subject for commit in found.suspects] == ["Change 6"]
    assert all("--first-losses --cell vsepp.lmh" in line for line in log.read_text().splitlines())


def test_a_slower_epoch_is_found_by_runs_beside_the_good_revision(
    ask: Callable[..., Bisected], revisions: Sequence[str], log: Path
) -> None:
    found = ask("epoch_time", good=revisions[4])
    assert [commit.subject for commit in found.suspects] == ["Change 6"]
    assert (found.good.value, found.bad.value) == (pytest.approx(10.01), pytest.approx(12.012))
    runs = log.read_text().splitlines()
    assert {line.partition(" ")[2] for line in runs} == {f"--cell vsepp.lmh --seeds {seed}" for seed in range(3)}
    assert len([line for line in runs if line.startswith("4 ")]) == len(runs) / 2


def test_quality_of_the_good_revision_is_measured_once_per_seed(
    ask: Callable[..., Bisected], revisions: Sequence[str], log: Path
) -> None:
    found = ask("best_m_recall", good=revisions[0], cell="vsepp.lsh")
    assert [commit.subject for commit in found.suspects] == ["Change 3"]
    assert len([line for line in log.read_text().splitlines() if line.startswith("0 ")]) == 3


def test_an_interrupted_search_goes_on_with_what_it_measured(
    ask: Callable[..., Bisected], revisions: Sequence[str], log: Path, repository: Repository
) -> None:
    def interrupted(tried: Tried, left: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask("best_m_recall", tell=interrupted, good=revisions[0])
    assert git(repository.root, "worktree", "list").count("\n") == 0
    before = log.read_text().splitlines()
    found = ask("best_m_recall", good=revisions[0])
    assert [commit.subject for commit in found.suspects] == ["Change 3"]
    again = log.read_text().splitlines()[len(before):]
    assert len(before) >= 6
    assert not set(before) & set(again)


def test_good_and_bad_come_from_the_nights_around_the_change(
    ask: Callable[..., Bisected], revisions: Sequence[str], tmp_path: Path, log: Path
) -> None:
    """The newest report tells of the cell and of the night since when; no night after that is a good one."""
    for day, number in ((1, 1), (2, 5), (3, 6)):
        keep(tmp_path, day, revisions[number])
    changes = [("vsepp.lsh", 0.2), ("vsepp.lmh", 0.1)]
    keep(tmp_path, 4, revisions[7], [row(cell, "epoch_time", "2026-01-03", change) for cell, change in changes])
    found = ask("epoch_time")
    assert (found.good.commit.hash, found.bad.commit.hash) == (revisions[5], revisions[7])
    assert [commit.subject for commit in found.suspects] == ["Change 6"]
    assert "--cell vsepp.lsh" in log.read_text()


def test_without_an_alarm_good_is_the_last_quiet_night_and_edited_nights_count_for_nothing(
    ask: Callable[..., Bisected], revisions: Sequence[str], tmp_path: Path
) -> None:
    for day, revision in ((1, revisions[1]), (2, f"{revisions[2]}+changes"), (3, "unknown"), (4, revisions[5])):
        keep(tmp_path, day, revision)
    found = ask("first_losses")
    assert (found.good.commit.hash, found.bad.commit.hash) == (revisions[1], revisions[5])


def test_equal_revisions_and_a_measure_that_they_lack(ask: Callable[..., Bisected], revisions: Sequence[str]) -> None:
    with refused(messages.SAME_VALUES, measure="epoch_time", pairs=3, by=NoDifference):
        ask("epoch_time", good=revisions[0], bad=revisions[5])
    with refused(messages.NO_VALUE, measure="peak_memory", cell="vsepp.lmh", by=CannotRun):
        ask("peak_memory", good=revisions[0])


@pytest.mark.parametrize(("measure", "given", "option"), [
    ("epoch_times", {}, "--measure"), ("epoch_time", {"cell": "vsepp.lm"}, "--cell"), ("epoch_time", {}, "--good"),
    ("epoch_time", {"good": "unknown"}, "--good"), ("epoch_time", {"good": "HEAD~1", "bad": "unknown"}, "--bad"),
])
def test_a_wrong_or_missing_option_is_named(
    ask: Callable[..., Bisected], tmp_path: Path, measure: str, given: dict[str, str], option: str
) -> None:
    with pytest.raises(UsageError) as error:
        ask(measure, **given)
    assert str(error.value).startswith(f"{option}: ")
    keep(tmp_path, 1, "0" * 40)
    with refused(messages.NO_REVISION, got="0" * 40):  # that of the night, which this repository does not have
        ask("epoch_time", good="HEAD~1")


def test_edited_files_are_refused_only_where_head_is_meant(
    ask: Callable[..., Bisected], repository: Repository, revisions: Sequence[str]
) -> None:
    (repository.root / "platform" / "vsetune" / "__init__.py").write_text("edited = True\n")
    with refused(messages.EDITED):
        ask("first_losses", good=revisions[0])
    assert len(ask("first_losses", good=revisions[0], bad="HEAD").suspects) == 1


def test_a_second_search_of_the_same_range_is_refused(
    ask: Callable[..., Bisected], revisions: Sequence[str], tmp_path: Path
) -> None:
    ask("first_losses", good=revisions[0])
    (place,) = (tmp_path / "history" / "bisect").iterdir()
    with take_lock(place / "lock", wait_s=0), refused(messages.BUSY, what=place, by=StudyConflict):
        ask("first_losses", good=revisions[0])


@pytest.mark.parametrize("content", ["[1]", '{"pairs": 3}', '{"pairs": {"abc": [1]}}', '{"losses": [1]}'])
def test_damaged_notes_of_a_search_are_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "notes.json").write_text(content)
    with refused(messages.UNREADABLE, file=tmp_path / "notes.json", by=DataError):
        Notes(tmp_path / "notes.json")
    (tmp_path / "notes.json").write_text("")
    with pytest.raises(DataError, match="remove it, the search then measures again$"):
        Notes(tmp_path / "notes.json")
