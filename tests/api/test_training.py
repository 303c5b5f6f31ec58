"""Training in this process: the same curve as the command line, from a file, from keywords, with a class of a cell."""

from __future__ import annotations

import json
import linecache
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from refusals import refused
from small_study import DATA, SMALL, TRAINING, small_study
from typer.testing import CliRunner

import vsetune
from vsetune.cli.main import app
from vsetune.training.attempt import Attempt

CELL = '''
import torch
from typing import ClassVar, Literal
import vsetune
from vsetune import tunable
from torch.nn.functional import softplus as soft

SHARPNESS = 8.0

def hinges(similarity, margin):
    return soft(SHARPNESS * (similarity - similarity.diagonal()[:, None] + margin)) / SHARPNESS

class SmoothSpec(vsetune.LossSpec):
    """Smooth hinges of all negatives."""
    equation: ClassVar[str] = "mean of softplus"
    source: ClassVar[str] = "a notebook"
    name: Literal["smooth"] = "smooth"
    margin: float = tunable(0.2, vsetune.Range(low=0.1, high=0.4), ge=0, description="margin")
'''
SECOND = '''
class Smooth(vsetune.Loss):
    spec: SmoothSpec

    def forward(self, inputs):
        terms = hinges(inputs.similarity, self.spec.margin) + hinges(inputs.similarity.T, self.spec.margin)
        return vsetune.LossOutput(value=FACTOR * terms.mean())
'''


class Notebook:
    """Cells that run one after another in one module without a file, as IPython does it."""

    def __init__(self) -> None:
        self.module, self._count = ModuleType("cells_of_a_notebook"), 0
        sys.modules[self.module.__name__] = self.module

    def run(self, cell: str) -> Any:
        self._count += 1
        name = f"<cell {self._count}>"
        linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)
        exec(compile(cell, name, "exec"), vars(self.module))
        return self.module


@pytest.fixture
def notebook() -> Iterator[Notebook]:
    made = Notebook()
    yield made
    del sys.modules[made.module.__name__]


def test_a_study_file_gives_the_curve_of_the_command_line(with_data, tmp_path: Path) -> None:
    file = small_study(study="of_file").save(tmp_path / "study.yaml")
    said = CliRunner().invoke(app, ["train", str(file), "--cell", "vsepp.info_nce", "--json"])
    there = json.loads(said.stdout)
    here = vsetune.train(file, cell="vsepp.info_nce", progress=False)
    shown = [line.split()[1:4:2] for line in said.stderr.splitlines() if line.startswith("epoch ")]
    assert len(shown) == 4
    assert shown == [[f"{row.epoch:.2f}", f"{row.m_recall:.2f}"] for row in here.curve.itertuples()]
    for name in ("best_m_recall", "epochs_to_best", "test_m_recall", "test_rsum", "steps"):
        assert here.summary[name] == there[name]


def encoded(vectors: np.ndarray) -> vsetune.Encoded:
    return vsetune.Encoded(torch.from_numpy(vectors))


def test_keywords_give_the_curve_of_the_study_and_the_network_of_its_best_validation(with_data) -> None:
    of_study = vsetune.train(small_study(), cell="vsepp.lmh", progress=False)
    of_words = vsetune.train(network=SMALL, loss=vsetune.losses.LMH, data=DATA, progress=False, **TRAINING)
    assert [*of_words.curve["m_recall"]] == [*of_study.curve["m_recall"]]
    embedded = of_words.embed("validation")
    scores = of_words.network.similarity(encoded(embedded.images), encoded(embedded.captions))
    assert vsetune.metrics.recall(scores, torch.from_numpy(embedded.owner)).m_recall == pytest.approx(
        of_words.summary["best_m_recall"], abs=1e-6
    )
    other = vsetune.train(network=SMALL, loss=vsetune.losses.LMH(margin=0.05), data=DATA, progress=False, **TRAINING)
    assert other.trial.loss.to_plain()["margin"] == 0.05
    assert [*other.curve["train_loss"]] != [*of_words.curve["train_loss"]]
    assert "M-Recall" in repr(other)
    assert "<table" in other._repr_html_()


def test_a_training_that_was_interrupted_goes_on(with_data, monkeypatch) -> None:
    keys = {"network": SMALL, "loss": "lmh", "data": DATA, "progress": False, "seed": 7, **TRAINING}
    whole = vsetune.train(**keys)
    real, taken = Attempt.advance, []

    def interrupted(attempt: Attempt) -> Any:
        if len(taken) == 2:
            raise KeyboardInterrupt
        taken.append(real(attempt))
        return taken[-1]

    monkeypatch.setattr(Attempt, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        vsetune.train(**keys)
    monkeypatch.setattr(Attempt, "advance", real)
    rest = vsetune.train(**keys, resume=True)
    assert [*rest.curve["m_recall"]] == [*whole.curve["m_recall"]]


def test_a_loss_of_a_notebook_is_written_to_a_plugin_and_trained(with_data, notebook) -> None:
    notebook.run(CELL)
    cells = notebook.run("FACTOR = 2.0\n" + SECOND)
    keys = {"network": SMALL, "data": DATA, "progress": False, **TRAINING}
    first = vsetune.train(loss=cells.Smooth, **keys)
    folder = with_data / "written" / "loss_smooth"
    assert "SHARPNESS = 8.0" in (folder / "loss.py").read_text()
    assert "softplus as soft" in (folder / "loss.py").read_text()
    cells = notebook.run("FACTOR = 4.0\n" + SECOND)
    second = vsetune.train(loss={"name": cells.Smooth, "fixed": {"margin": 0.2}}, **keys)
    assert second.curve["train_loss"][0] == pytest.approx(2 * first.curve["train_loss"][0], rel=0.2)
    study = small_study(study="with_smooth", losses=["lmh", cells.Smooth])
    assert study.cells == ["vsepp.lmh", "vsepp.smooth"]
    assert study.spec.plugins == [str(folder)]
    assert isinstance(vsetune.losses.named("smooth", margin=0.1), vsetune.PlainLoss)


def test_classes_and_keywords_that_cannot_be_trained_are_refused(with_data, notebook) -> None:
    cells = notebook.run(CELL + "import threading\nFACTOR = threading.Lock()\n" + SECOND)
    keys = {"network": SMALL, "data": DATA, **TRAINING}
    with refused("VSE-A003", used="FACTOR", kind="lock"):
        vsetune.train(loss=cells.Smooth, **keys)
    cells = notebook.run("class Bare(vsetune.Loss):\n    pass\n")
    with refused("VSE-A002", name="Bare", base="LossSpec"):
        vsetune.train(loss=cells.Bare, **keys)
    sourceless = type("Sourceless", (vsetune.Loss,), {"__annotations__": {"spec": vsetune.losses.LMH().spec.__class__}})
    with refused("VSE-A001", name="Sourceless"):
        vsetune.train(loss=sourceless, **keys)
    with refused("VSE-A004", key="losses[0]", got="int"):
        vsetune.train(loss=3, **keys)
    with refused("VSE-A008"):
        vsetune.train(loss="lmh")
    with refused("VSE-A007", key="epochs"):
        vsetune.train(small_study(), epochs=3)
    with pytest.raises(vsetune.UsageError, match="vsepp.lmh"):
        vsetune.train(small_study(), cell="vsepp.lmg", progress=False)
