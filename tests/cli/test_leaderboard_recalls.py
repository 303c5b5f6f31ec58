"""R@1, R@5, R@10 of both directions and their sum: what their means are over, and which columns show them."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable
from typing import NamedTuple

import pytest

from vsetune.records.events import AttemptStart, StudyRecord, ValidationPoint
from vsetune.records.writer import StudyWriter

SIX = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10")


@pytest.fixture(autouse=True)
def wide(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


class Recorded(NamedTuple):
    """loss, repeat: of the search. counts: it enters the means. points: recalls of each validation. test: of the best
    checkpoint, None where no test split was scored."""

    loss: str
    repeat: int
    counts: bool
    points: list[dict[str, float]]
    test: dict[str, float] | None


def drawn(numbers: random.Random) -> dict[str, float]:
    six = {name: numbers.uniform(5, 90) for name in SIX}
    return six | {"rsum": sum(six.values())}


@pytest.fixture
def runs(opened: Callable[[StudyRecord], StudyWriter]) -> list[Recorded]:
    """lmh: three seeds. lseh: tuned by two searches, confirmed by two seeds and by one, so that a mean over seeds is
    another number than one over searches. top_f: one of its two seeds has no test split."""
    numbers, writer, found = random.Random(7), opened(StudyRecord("demo", "demo", {"baseline": "lmh"})), []

    def run(loss: str, repeat: int, seed: int, configuration: int, phase: str, *, counts: bool, test: bool) -> None:
        cell = f"vsepp.{loss}" if repeat == 1 else f"vsepp.{loss}.r{repeat}"
        points = [drawn(numbers) for _ in range(4)]
        if phase == "search":
            points = [{name: value / (2 if configuration else 9) for name, value in each.items()} for each in points]
        scored = drawn(numbers) if test else None
        attempt = writer.start_attempt(AttemptStart(
            study="demo", trial=f"{cell}-c{configuration:03d}-s{seed}", cell=cell, network="vsepp", loss=loss, number=1,
            seed=seed, phase=phase, configuration={"loss.margin": 0.1 + configuration},
            resolved={"network": {"name": "vsepp"}, "data": {"tests": {"coco": {}}}},
            protocol={"dataset": "scenes", "images": 8},
        ))
        writer.record_points(attempt, [
            ValidationPoint(step, 0.5 * step, 10 * step, each["rsum"] / 6, 1.0, each)
            for step, each in enumerate(points, 1)
        ])
        summary = {f"test_{name}": value for name, value in (scored or {}).items()}
        writer.finish_attempt(attempt, "finished", summary=summary, error=None)
        found.append(Recorded(loss, repeat, counts, points, scored))

    for seed in (1, 2, 3):
        run("lmh", 1, seed, 0, "confirm", counts=True, test=True)
    for repeat, seeds in ((1, (11, 12)), (2, (21,))):
        for configuration in (0, 1):
            run("lseh", repeat, 10 * repeat, configuration, "search", counts=False, test=False)
        for seed in seeds:
            run("lseh", repeat, seed, 1, "confirm", counts=True, test=True)
    for seed in (1, 2):
        run("top_f", 1, seed, 0, "confirm", counts=True, test=seed == 1)
    return found


def expected(runs: list[Recorded], loss: str) -> dict[str, float]:
    """A plain loop over what was recorded: searches of lseh first, then their mean; seeds of the others."""
    total: dict[str, float] = {}
    for prefix in ("", "test_"):
        for name in (*SIX, "rsum"):
            means: list[float] = []
            for repeat in (1, 2):
                values: list[float] = []
                for run in runs:
                    if run.loss != loss or run.repeat != repeat or not run.counts:
                        continue
                    best = run.points[0]
                    for point in run.points[1:]:
                        if point["rsum"] > best["rsum"]:
                            best = point
                    scores = run.test if prefix else best
                    if scores is None:
                        break
                    values.append(scores[name])
                else:
                    means += [sum(values) / len(values)] if loss == "lseh" else values
            if means:
                total[prefix + name] = sum(means) / len(means)
    return total


def test_means_are_over_searches_or_seeds_and_what_a_seed_lacks_has_none(vsetune, runs, tmp_path) -> None:
    keys = [prefix + name for prefix in ("", "test_") for name in (*SIX, "rsum")]
    files = {kind: tmp_path / f"board.{kind}" for kind in ("csv", "json")}
    words = [word for kind, file in files.items() for word in (f"--{kind}", str(file))]
    assert vsetune("leaderboard", "export", "demo", *words, "--columns", "recalls,test_recalls").code == 0
    shown = vsetune("leaderboard", "show", "demo", "--columns", "test_recalls").out
    lines = {line["loss"]: line for line in csv.DictReader(io.StringIO(files["csv"].read_text()))}
    plain = {row["loss"]: row["recalls"] for row in json.loads(files["json"].read_text())["rows"]}
    for loss in ("lmh", "lseh", "top_f"):
        means = expected(runs, loss)
        if loss == "top_f":
            means = {name: value for name, value in means.items() if not name.startswith("test_")}
            (line,) = [line for line in shown.splitlines() if line.startswith("top_f")]
            assert line.count("–") == 7
        assert plain[loss] == pytest.approx(means)
        assert {key: lines[loss][key] for key in keys} == {
            key: str(plain[loss][key]) if key in means else "" for key in keys
        }


def test_a_board_shows_both_r_at_1_and_the_others_are_chosen(vsetune, runs, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    heading = vsetune("leaderboard", "show", "demo").out.partition("───")[0]
    assert (heading.count("R@1"), heading.count("R@5")) == (2, 0)
    said = vsetune("leaderboard", "show", "demo", "--columns", "i2t_r5, seeds")
    assert said.out.partition("───")[0].splitlines()[-1].split() == ["loss", "i2t", "seeds"]
    vsetune("leaderboard", "show", "demo", "--columns", "i2t_r4").refused(
        "VSE-C004", "--columns", "i2t_r4",
    )


@pytest.mark.parametrize("form", ["json", "csv", "latex"])
def test_a_test_set_that_no_study_has_is_refused_in_every_format(vsetune, runs, tmp_path, form) -> None:
    for columns, name in (("test.cocoo", "test.cocoo"), ("seeds,test.cocoo.i2t_r1", "test.cocoo.i2t_r1")):
        said = vsetune("leaderboard", "export", "demo", f"--{form}", str(tmp_path / "board"), "--columns", columns)
        said.refused("VSE-C004", "--columns", name, "did you mean test.coco")
    assert not (tmp_path / "board").exists()
    vsetune("leaderboard", "show", "demo", "--columns", "test.").refused("VSE-C004", "--columns")
    shown = vsetune("leaderboard", "show", "demo", "--columns", "test.coco")
    assert (shown.code, shown.out.count("coco")) == (0, 8), "known, not scored"


def test_the_notes_have_what_the_board_leaves_out(vsetune, runs) -> None:
    said = vsetune("leaderboard", "notes", "demo")
    assert (said.code, said.err) == (0, "")
    for words in ("Protocol: ", "What the data support", "vsepp lseh: search by search ", "Columns"):
        assert words in " ".join(said.out.split())
    vsetune("leaderboard", "notes").refused("VSE-X002", "leaderboard notes")
