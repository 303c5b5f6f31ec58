"""Every number of a board, recomputed from the ranks of single queries by plain loops, in every format and in MLflow.

The ranks are made up; the product turns them into recalls, records them, picks winners and confirms them as in a real
study. The other way from the ranks to the board is `plain_board.py`, which imports nothing of the product.
"""

from __future__ import annotations

import csv
import io
import json
import math
import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from logged_studies import Logs
from mlflow import MlflowClient
from plain_board import Number, Training, board_of, recalls_of
from repeated_studies import SEARCHED, cells_of, study_of

import vsetune as api
from vsetune.board.columns import COLUMNS, columns_of
from vsetune.config.study.study_spec import StudySpec
from vsetune.metrics.ranks import QueryRanks, RetrievalRanks
from vsetune.metrics.recalls import RetrievalScores, scores_of_ranks
from vsetune.records.events import ValidationPoint
from vsetune.records.mlflow_export import MlflowExport
from vsetune.records.studies import folder_of_study
from vsetune.study.ledger import StudyLedger
from vsetune.study.trials import PlannedTrial
from vsetune.training.attempt_progress import Progress, summarise
from vsetune.training.evaluation import recalls
from vsetune.training.executions import Execution

pytestmark = pytest.mark.filterwarnings("default")  # MLflow's dependencies warn about themselves
IMAGES, CAPTIONS, PAIRS, EPOCHS = 80, 400, 400, 8
RECALLS = tuple(f"{way}_r{k}" for way in ("i2t", "t2i") for k in (1, 5, 10))
OF_A_RANKING = (*RECALLS, "rsum")
Trained = tuple[Path, list[Training]]
"""A home and its trainings."""
NO_NUMBERS = {"dataset", "network", "loss", "flags", "baseline_collapsed", "not_comparable", "usd"}
"""Columns of words, and the price of nodes that have none here."""

UNTUNED: dict[str, Any] = {
    "losses": [{"name": "lmh"}, {"name": "lseh"}, {"name": "info_nce"}], "seeds": [0, 1, 2, 3, 4, 5],
    "search": {"configurations": 1, "repeats": 1},
}
TUNED: dict[str, Any] = {
    "losses": [{"name": "lmh"}, {"name": "lseh"}], "seeds": [0, 1, 4],
    "search": {"configurations": 3, "repeats": 3, **SEARCHED},
}
SCALES, PACES = {"lmh": 9.0, "lseh": 7.5, "info_nce": 9.3}, {"lmh": 3.0, "lseh": 1.6, "info_nce": 4.0}
"""Of made-up ranks: their mean at the end of a training, and the epochs in which they come near to it."""


@pytest.fixture(scope="module", params=[UNTUNED, TUNED], ids=["untuned", "tuned"])
def trained_once(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A study that has ended, and what was made up for its trainings."""
    home, logs = tmp_path_factory.mktemp("home"), Logs()
    study = study_of(study="ranked", training={"epochs": EPOCHS}, baseline="lmh", **request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VSETUNE_HOME", str(home))
        found = _trained(study, logs)
        logs.close()
    return home, found


@pytest.fixture
def trained(trained_once: Trained, monkeypatch: pytest.MonkeyPatch) -> list[Training]:
    """The trainings of that study, in its home."""
    monkeypatch.setenv("VSETUNE_HOME", str(trained_once[0]))
    return trained_once[1]


def _trained(study: StudySpec, logs: Logs) -> list[Training]:
    writer, found = logs.opened(study), []
    ledger = StudyLedger(study, cells_of(study), writer)
    ledger.recover()
    protocol = {"dataset": "scenes", "images": IMAGES, "captions": CAPTIONS}
    while isinstance(planned := ledger.next(), PlannedTrial):
        training = _made_up(planned, random.Random(planned.name))
        ledger.open_attempt(training.trial, number=1, environment={}, protocol=protocol, inherited=[])
        progress = Progress()
        for place, (epoch, ranks) in enumerate(training.validations, 1):
            metrics = recalls(_scored(ranks))
            progress.step, progress.pairs_seen = 10 * place, round(PAIRS * epoch)
            progress.train_seconds = training.train_seconds * epoch / EPOCHS
            progress.validation_seconds = training.validation_seconds * epoch / EPOCHS
            point = ValidationPoint(
                progress.step, epoch, progress.pairs_seen, metrics.pop("m_recall"), progress.train_seconds, metrics
            )
            progress.record(point)
            ledger.record_point(training.trial, point)
        summary = summarise(progress, Execution(number=1, wasted_pairs=0, wasted_seconds=0.0), pairs=PAIRS)
        tested = {f"test_{name}": value for name, value in recalls(_scored(training.test)).items()}
        ledger.close(training.trial, "finished", summary=summary | tested)
        found.append(training)
    writer.finish_study("finished")
    return found


def _made_up(planned: PlannedTrial, numbers: random.Random) -> Training:
    """A training whose ranks fall: soon or late, far or less far, by its loss, its learning rate and its seed."""
    trial = planned.spec
    _, loss, *repeat = trial.cell.split(".")
    missed = abs(math.log10(trial.training.learning_rate) + 2)
    end = SCALES[loss] * (1 + missed / 3) * math.exp(numbers.gauss(0, 0.08))

    def ranks(epoch: float) -> tuple[list[int], list[int]]:
        mean = end * (1 + 6 * math.exp(-epoch / PACES[loss]))
        return tuple(
            [min(int(numbers.expovariate(1 / mean)), candidates - 1) for _ in range(queries)]
            for queries, candidates in ((IMAGES, CAPTIONS), (CAPTIONS, IMAGES))
        )

    return Training(
        trial=trial.trial, loss=loss, repeat=int(repeat[0].removeprefix("r")) if repeat else 1,
        configuration=planned.number, settings=dict(planned.configuration), seed=trial.seed,
        is_search=planned.phase == "search",
        validations=[(place / 2, ranks(place / 2)) for place in range(1, 2 * EPOCHS + 1)], test=ranks(EPOCHS),
        train_seconds=numbers.uniform(30, 50), validation_seconds=numbers.uniform(3, 5),
    )


def _scored(ranks: tuple[list[int], list[int]]) -> RetrievalScores:
    both = (QueryRanks(torch.tensor(of), torch.zeros(len(of), dtype=torch.bool), 0) for of in ranks)
    return scores_of_ranks(RetrievalRanks(*both), candidates=IMAGES)


def test_csv_and_the_python_interface_have_every_number(vsetune, trained, tmp_path) -> None:
    expected = board_of(trained, baseline="lmh")
    keys = {column.key for column in columns_of("csv", COLUMNS, ())}
    assert all(row.keys() | NO_NUMBERS == keys for row in expected.values()), "a column that is not recomputed"
    file = tmp_path / "board.csv"
    assert vsetune("leaderboard", "export", "ranked", "--csv", str(file)).code == 0
    lines = {line["loss"]: line for line in csv.DictReader(io.StringIO(file.read_text()))}
    frame = {row["loss"]: row for row in api.open_study("ranked").board.to_dict("records")}
    assert lines.keys() == frame.keys() == expected.keys()
    for loss, row in expected.items():
        for key, value in row.items():
            text = str(value) if isinstance(value, bool | str) else value
            same(read(lines[loss][key], text), text, f"CSV, {loss}, {key}")
            same(frame[loss][key], value, f"DataFrame, {loss}, {key}")


def read(cell: str, like: Number) -> Number:
    """A cell of CSV as the type of the number that it should be; None if it is empty."""
    return (cell if like is None else type(like)(cell)) if cell else None


def same(found: Any, value: Number, where: str) -> None:
    if isinstance(found, float) and math.isnan(found):
        found = None
    if isinstance(value, float):
        assert found == pytest.approx(value, rel=1e-7, abs=1e-9), where
    else:
        assert found == value, where


PLACES: Mapping[str, tuple[str | int, ...]] = {
    **{name: ("recalls", name) for prefix in ("", "test_") for name in (f"{prefix}{each}" for each in OF_A_RANKING)},
    **{
        name: (name,) for name in (
            "best_m_recall", "best_m_recall_std", "epochs_to_best", "epochs_to_level", "seconds_per_epoch",
            "test_m_recall", "trials", "attempts", "configurations", "resolution_epochs", "collapsed_seeds",
        )
    },
    "best_m_recall_low": ("m_recall_bounds", 0), "best_m_recall_high": ("m_recall_bounds", 1),
    "m_recall_gain": ("comparison", "m_recall"), "m_recall_gain_p": ("comparison", "height_p"),
    "m_recall_gain_low": ("comparison", "m_recall_bounds", 0),
    "m_recall_gain_high": ("comparison", "m_recall_bounds", 1), "gets_higher": ("comparison", "height"),
    "improvement": ("comparison", "improvement"), "epochs_percent": ("comparison", "epochs", "percent"),
    "epochs_percent_low": ("comparison", "epochs_bounds", 0), "epochs_p": ("comparison", "epochs_p"),
    "epochs_percent_high": ("comparison", "epochs_bounds", 1), "is_sooner": ("comparison", "epochs_answer"),
    "m_recall_gain_level": ("comparison", "height_level"), "epochs_level": ("comparison", "epochs_level"),
    "target_m_recall": ("comparison", "epochs", "target"), "epochs_to_target": ("epochs_to_target", "value"),
    "epochs_to_target_low": ("epochs_bounds", 0), "epochs_to_target_high": ("epochs_bounds", 1),
    "difference_percent": ("difference", "percent"), "difference_low": ("difference", "low"),
    "device_seconds": ("cost", "device_seconds"), "search_std": ("spread", "search"), "seed_std": ("spread", "seed"),
}
"""Where JSON has the numbers of a row."""


def test_json_has_the_same_numbers(vsetune, trained, tmp_path) -> None:
    file = tmp_path / "board.json"
    assert vsetune("leaderboard", "export", "ranked", "--json", str(file)).code == 0
    rows = {row["loss"]: row for row in json.loads(file.read_text())["rows"]}
    for loss, row in board_of(trained, baseline="lmh").items():
        for key, way in PLACES.items():
            found: Any = rows[loss]
            for step in way:
                found = None if found is None else found[step]
            same(found, "Infinity" if row[key] == math.inf else row[key], f"JSON, {loss}, {key}")


SHOWN: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "best_m_recall": (1, ("best_m_recall", "best_m_recall_std", "best_m_recall_low", "best_m_recall_high")),
    "m_recall_gain": (1, ("m_recall_gain", "m_recall_gain_low", "m_recall_gain_high")),
    **{f"{prefix}{name}": (1, (f"{prefix}{name}",)) for prefix in ("", "test_") for name in OF_A_RANKING},
    "test_m_recall": (1, ("test_m_recall",)), "epochs_to_best": (2, ("epochs_to_best",)),
    "epochs_to_level": (2, ("epochs_to_level",)),
    "epochs_to_target": (2, ("epochs_to_target", "epochs_to_target_low", "epochs_to_target_high")),
    "epochs_percent": (1, ("epochs_percent", "epochs_percent_low", "epochs_percent_high")),
    "difference_percent": (1, ("difference_percent", "difference_low", "difference_high")),
    "seconds_per_epoch": (1, ("seconds_per_epoch",)), "device_seconds": (0, ("device_seconds",)),
    "epochs_charged": (1, ("epochs_charged",)), "trials": (0, ("trials",)), "seeds": (0, ("seeds",)),
}
"""Digits of a column for people, and the numbers in each of its cells."""


def test_every_table_for_people_has_the_same_numbers_rounded(vsetune, trained, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    files = {kind: tmp_path / f"board.{kind}" for kind in ("html", "markdown", "latex")}
    chosen = ("--columns", ",".join(SHOWN))
    words = [word for kind, file in files.items() for word in (f"--{kind}", str(file))]
    said = vsetune("leaderboard", "export", "ranked", *words, *chosen)
    assert said.code == 0, said.err
    expected, columns = board_of(trained, baseline="lmh"), [column for column in COLUMNS if column.key in SHOWN]
    headings = {column.key: column.title for column in columns}
    forms = {
        "terminal": terminal(vsetune("leaderboard", "show", "ranked", *chosen).out),
        "page": page(files["html"].read_text(), headings),
        "markdown": table(files["markdown"].read_text(), "|"), "latex": table(files["latex"].read_text(), "&"),
    }
    for form, cells in forms.items():
        assert cells.keys() == expected.keys(), form
        for loss, row in expected.items():
            for cell, (key, (digits, parts)) in zip(cells[loss], SHOWN.items(), strict=True):
                values = [row[part] for part in parts if row[part] is not None]
                found = [float(each.replace(",", "")) for each in numbers_of(cell)]
                assert len(found) == len(values), (form, loss, key, cell, values)
                for number, value in zip(found, values, strict=True):
                    is_same = number == value or abs(number - value) <= 0.5 * 10**-digits + 1e-9
                    assert is_same, (form, loss, key, cell, values)


def numbers_of(cell: str) -> list[str]:
    plain = cell.replace("−", "-").replace("$-$", "-").replace("$\\infty$", "inf").replace("∞", "inf")
    return re.findall(r"-?(?:\d[\d,]*(?:\.\d+)?|inf)", plain)


def terminal(text: str) -> dict[str, list[str]]:
    """Cells are aligned at their right ends; an interval stands below its number."""
    rows: list[dict[int, str]] = []
    for line in text.partition("───")[2].splitlines()[1:]:
        cells = {found.end(): found[0] for found in re.finditer(r"\S+(?: \S+)*", line)}
        if len(cells) == len(SHOWN) + 1:
            rows.append(cells)
        elif rows and cells.keys() <= rows[-1].keys():
            rows[-1] |= {end: f"{rows[-1][end]} {cell}" for end, cell in cells.items()}
    return {row[0].split()[0]: row[1:] for row in (list(each.values()) for each in rows)}


def page(text: str, headings: Mapping[str, str]) -> dict[str, list[str]]:
    found = {}
    for row in re.findall(r'<tr role="row" class="[^"]*" data-key.*?</tr>', text, re.DOTALL):
        cells = dict(re.findall(r'data-label="([^"]*)"[^>]*>([^<]*)<', row.replace("&#39;", "'")))
        found[cells["loss"].strip()] = [cells[headings[key]] for key in SHOWN]
    return found


def table(text: str, divider: str) -> dict[str, list[str]]:
    lines = [[cell.strip() for cell in line.strip("| \\").split(divider)] for line in text.splitlines()]
    return {
        cells[2].split()[0].replace("\\", ""): cells[3:] for cells in lines if len(cells) > 10 and cells[0] == "scenes"
    }


@pytest.mark.parametrize("trained_once", [UNTUNED | {"losses": [{"name": "lmh"}], "seeds": [0, 1]}], indirect=True)
def test_mlflow_has_the_recalls_of_every_validation_and_of_the_test_split(trained, mlflow_here: str) -> None:
    folder = folder_of_study("ranked")
    export = MlflowExport(mlflow_here, folder, series="all", file=lambda name: None)
    while export.advance():
        pass
    client = MlflowClient(mlflow_here)
    experiment = client.get_experiment_by_name("ranked")
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id], max_results=200)}
    for training in trained:
        run = runs[training.trial]
        of_validations = [recalls_of(ranks) for _, ranks in training.validations]
        for name in (*OF_A_RANKING, "m_recall"):
            history = client.get_metric_history(run.info.run_id, name)
            assert [each.value for each in sorted(history, key=lambda each: each.step)] == pytest.approx(
                [float(each[name]) for each in of_validations]
            ), (training.trial, name)
            assert run.data.metrics[f"test_{name}"] == pytest.approx(float(recalls_of(training.test)[name]))
