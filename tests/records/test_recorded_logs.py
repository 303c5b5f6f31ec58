"""Studies recorded by version 0.2.0, as small as can be: read now, they ask for the same trials and have the same
boards.

`tests/recorded/NAME.log.xz`: ten logs (equal settings, three searches, tpe, asha, median, trials that diverge, phases,
confirmed with further seeds, several processes a trial, a killed and resumed driver). `boards.csv`: their boards as
`vsetune leaderboard export --csv` gave them; a change of a number there is a change of a result, which CHANGELOG names.
`VSETUNE_RENEW=1 pytest tests/records/test_recorded_logs.py` renews it.
"""

from __future__ import annotations

import csv
import io
import lzma
import os
from pathlib import Path

import pytest

from vsetune.board.export import to_csv
from vsetune.config.study.cells import repeated_cells, resolve_cells
from vsetune.records.events import Drawn, Ended
from vsetune.records.log import lines_of
from vsetune.records.state import Attempt
from vsetune.records.studies import Studies, folder_of_study
from vsetune.records.writer import StudyWriter
from vsetune.search.configurations import ConfigurationSearch
from vsetune.study.recorded_boards import recorded_board
from vsetune.study.recorded_studies import spec_of

RECORDED = Path(__file__).parents[1] / "recorded"
NAMES = sorted(path.name.removesuffix(".log.xz") for path in RECORDED.glob("*.log.xz"))
BOARDS = RECORDED / "boards.csv"


def put_home(name: str) -> Path:
    folder = folder_of_study(name)
    folder.mkdir(parents=True)
    (folder / "study.log").write_bytes(lzma.decompress((RECORDED / f"{name}.log.xz").read_bytes()))
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VSETUNE_HOME", str(tmp_path))


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("name", NAMES)
def test_the_same_configurations_are_asked_for_at_every_place_of_the_log(name: str) -> None:
    events = [line.event() for line in lines_of(put_home(name) / "study.log", number=0, strict=True)]
    study = spec_of(Studies().record(name))
    writer = StudyWriter()
    search = ConfigurationSearch(repeated_cells(study, resolve_cells(study, where=name)), study.search, writer)
    ended: dict[str, dict[int, Attempt]] = {cell: {} for cell in search._cells}
    for event in events:
        if isinstance(event, Drawn):
            drawn = search.ask(event.cell, search.history(event.cell, ended=ended[event.cell]))
            assert drawn is not None
            assert (drawn.number, drawn.configuration) == (event.number, event.configuration)
            continue
        writer.state.add(event)
        if isinstance(event, Ended) and event.status in ("finished", "pruned", "failed"):
            attempt = writer.state.attempt(event.attempt)
            if attempt.start.phase == "search":
                number = int(attempt.start.trial.rsplit("-", 2)[1].removeprefix("c"))
                ended[attempt.start.cell][number] = attempt


def board_lines() -> list[dict[str, str]]:
    """Lines of the boards of all recorded studies."""
    return [
        {"log": name} | line for name in NAMES
        for line in csv.DictReader(io.StringIO(to_csv(recorded_board(Studies(), name))))
    ]


@pytest.mark.usefixtures("home")
def test_boards_of_recorded_logs_have_the_same_numbers() -> None:
    for name in NAMES:
        put_home(name)
    if os.environ.get("VSETUNE_RENEW"):
        renew()
    expected = list(csv.DictReader(io.StringIO(BOARDS.read_text())))
    found = board_lines()
    assert [name_of(line) for line in found] == [name_of(line) for line in expected]
    for one, other in zip(found, expected, strict=True):
        for column, text in other.items():
            if (number := number_of(text)) is not None:
                now = number_of(one[column])
                assert now == pytest.approx(number, rel=1e-12, nan_ok=True), f"{name_of(one)}: {column}"


@pytest.mark.usefixtures("home")
def test_the_board_of_a_study_that_has_trials_left_knows_it() -> None:
    log = put_home("repeats") / "study.log"
    assert recorded_board(Studies(), "repeats").unfinished == ()
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[: len(lines) // 4]))
    assert recorded_board(Studies(), "repeats").unfinished == ("repeats",)


def name_of(line: dict[str, str]) -> str:
    return " ".join(line[each] for each in ("log", "network", "loss"))


def renew() -> None:
    lines = board_lines()
    with BOARDS.open("w", newline="") as stream:
        table = csv.DictWriter(stream, list(dict.fromkeys(name for line in lines for name in line)))
        table.writeheader()
        table.writerows(lines)


def number_of(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None
