"""A finished study in Python: its board is that of the command line, its trials answer questions."""

from __future__ import annotations

import json
import math
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image
from refusals import refused
from typer.testing import CliRunner

import vsetune
from vsetune.board.wording import fixed
from vsetune.cli.main import app
from vsetune.data.stored.shards import read_some


def test_the_board_has_the_numbers_of_the_command_line(finished) -> None:
    shown = json.loads(CliRunner().invoke(app, ["leaderboard", "show", "small", "--json"]).stdout)
    board = finished.board
    assert [*board["loss"]] == [row["loss"] for row in shown["rows"]]
    for name in ("best_m_recall", "epochs_to_best", "test_m_recall", "configurations", "trials"):
        ours, theirs = [*board[name]], [row[name] for row in shown["rows"]]
        assert len(ours) == 2
        for one, other in zip(ours, theirs, strict=True):
            assert one == other or (math.isnan(one) and other is None), name


def test_findings_are_those_of_the_terminal(finished) -> None:
    shown = CliRunner().invoke(app, ["leaderboard", "show", "small"]).stdout
    for sentence in finished.findings:
        assert "".join(sentence.split()) in "".join(shown.split())


def test_attempts_and_curves_have_a_row_each(finished) -> None:
    attempts, curves = finished.attempts, finished.curves
    assert finished.status == "finished"
    assert {*attempts["trial"]} == {*finished.trials}
    assert {*attempts["phase"]} == {"search", "confirm"}
    assert [*curves.columns][-2:] == ["epoch", "m_recall"]
    best = curves.groupby("attempt")["m_recall"].max()
    for _, row in attempts.iterrows():
        assert best[row["attempt"]] == row["best_m_recall"]
    trial = finished.trial(attempts["trial"][0])
    own = curves[curves["attempt"] == attempts["attempt"][0]]
    assert [*trial.curve["m_recall"]] == [*own["m_recall"]]
    assert {"i2t_r1", "train_loss", "train_seconds"} <= {*trial.curve.columns}
    assert trial.settings["loss"]["name"] == attempts["loss"][0]


def test_a_trial_answers_questions(finished) -> None:
    trial = finished.trial(finished.trials[0])
    embedded = trial.embed()
    assert embedded.images.shape == (16, 16)
    assert embedded.captions.shape[0] == len(embedded.texts) == len(embedded.owner)
    scores = torch.from_numpy(embedded.images @ embedded.captions.T)
    recalls = vsetune.metrics.recall(scores, torch.from_numpy(embedded.owner))
    assert recalls.m_recall == pytest.approx(trial.record.summary["test_m_recall"], abs=1e-6)
    place = 7
    (vector,) = trial.encode_captions([embedded.texts[place]])
    np.testing.assert_allclose(vector, embedded.captions[place], atol=1e-5)
    found = trial.search(embedded.texts[place], top=4)
    order = np.argsort(-(embedded.images @ vector), kind="stable")[:4]
    assert found.items == [embedded.image_names[each] for each in order]
    assert [*found.table["score"]] == sorted(found.scores, reverse=True)
    assert found._repr_html_().count("data:image/jpeg;base64,") == 4
    back = trial.search(image=embedded.image_names[3], top=2)
    best = np.argsort(-(embedded.captions @ embedded.images[3]), kind="stable")[:2]
    assert back.items == [embedded.texts[each] for each in best]


def test_a_photograph_is_searched_as_the_image_of_the_data_set(finished, tmp_path: Path) -> None:
    trial = finished.trial(finished.trials[0])
    dataset = vsetune.Dataset.open(trial.trained().trial.data.path)
    (shard,) = dataset.split("test").shards
    (record, _, photograph), = read_some(dataset, shard, {3})
    (place := tmp_path / "photograph.jpg").write_bytes(photograph.content)
    known = trial.search(image=record.name, top=3)
    turned = Image.open(place).rotate(90, expand=True)
    turned.getexif()[0x0112] = 6
    turned.save(tmp_path / "turned.tiff", exif=turned.getexif())
    files = (place, str(place), photograph.content, Image.open(place))
    for image in (*files, tmp_path / "turned.tiff", Image.open(tmp_path / "turned.tiff")):
        found = trial.search(image=image, top=3)
        assert found.items == known.items
        assert found.scores == pytest.approx(known.scores, abs=1e-4)
    np.testing.assert_allclose(trial.encode_images([place])[0], trial.embed("test").images[3], atol=1e-4)


def test_questions_that_nobody_can_answer_are_refused(finished) -> None:
    trial = finished.trial(finished.trials[0])
    with refused("VSE-A006", got="neither"):
        trial.search()
    with refused("VSE-A005", got="nowhere", split="test"):
        trial.search(image="nowhere")
    with refused("VSE-R008", study="smal"):
        vsetune.open_study("smal")
    with refused("VSE-S061", got="small"):
        vsetune.Trial("small")


def test_the_figure_is_drawn_by_jupyter_and_saved(finished, tmp_path: Path) -> None:
    figure = finished.figure
    bundle = figure._repr_mimebundle_()
    (chart,) = bundle["application/vnd.vegalite.v5+json"]["vconcat"]
    assert {each["loss"] for each in chart["data"]["values"]} == {"lmh", "info_nce"}
    curves = finished.curves
    best = max(each["mean"] for each in chart["data"]["values"])
    assert best <= curves["m_recall"].max()
    drawn = ElementTree.fromstring(bundle["image/svg+xml"])
    words = drawn.get("aria-label")
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg", "a picture of its own, not a part of a page"
    assert (drawn.get("role"), words) == ("img", figure.spec["description"])
    assert all(f"{row.loss} {fixed(row.best_m_recall, 1)} %" in words for row in finished.leaderboard.rows)
    assert figure.save(tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads(figure.save(tmp_path / "curves.json").read_text()) == json.loads(json.dumps(figure.spec))
    with pytest.raises(ValueError, match=r"need \.svg"):
        figure.save(tmp_path / "curves.pdf")


def test_notebooks_show_tables(finished) -> None:
    assert "best_m_recall" in finished._repr_html_()
    assert "2 losses" in repr(vsetune.Study(finished.config))
    assert "small" in vsetune.studies()  # tests beside these add some
