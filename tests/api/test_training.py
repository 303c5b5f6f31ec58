"""Training in this process: the same curve as the command line, from a file, from keywords, with a class of a cell."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
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
from trials_here import without_ray
from typer.testing import CliRunner

import vsetune
from vsetune.cli.main import app
from vsetune.config.plugins import load_plugin
from vsetune.training.attempt import TrainingAttempt

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
NETWORK = '''
class TinySpec(vsetune.NetworkSpec):
    """Regions and words, averaged."""
    source: ClassVar[str] = "a notebook"
    name: Literal["tiny"] = "tiny"
    embedding_size: int = vsetune.tunable(7, vsetune.Range(low=4, high=8), ge=1, description="size of the joint space")

class Tiny(vsetune.Network):
    spec: TinySpec

    def __init__(self, spec, *, width, vocabulary_size):
        super().__init__(spec)
        self.images = torch.nn.Linear(width, spec.embedding_size)
        self.words = torch.nn.Embedding(vocabulary_size, spec.embedding_size)

    def encode_images(self, images):
        return vsetune.Encoded(torch.nn.functional.normalize(self.images(images.features.mean(dim=1)), dim=1))

    def encode_captions(self, captions):
        return vsetune.Encoded(torch.nn.functional.normalize(self.words(captions.words).mean(dim=1), dim=1))
'''


class Notebook:
    """Cells that run one after another in one module without a file, as IPython does it."""

    def __init__(self) -> None:
        self.module = ModuleType("cells_of_a_notebook")
        sys.modules[self.module.__name__] = self.module

    def run(self, cell: str) -> Any:
        exec(cell, vars(self.module))
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
    real, taken = TrainingAttempt.advance, []

    def interrupted(attempt: TrainingAttempt) -> Any:
        if len(taken) == 2:
            raise KeyboardInterrupt
        taken.append(real(attempt))
        return taken[-1]

    monkeypatch.setattr(TrainingAttempt, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        vsetune.train(**keys)
    monkeypatch.setattr(TrainingAttempt, "advance", real)
    rest = vsetune.train(**keys, resume=True)
    assert [*rest.curve["m_recall"]] == [*whole.curve["m_recall"]]


def test_a_loss_of_a_notebook_is_pickled_into_a_plugin_and_trained(with_data, notebook) -> None:
    notebook.run(CELL)
    cells = notebook.run("FACTOR = 2.0\n" + SECOND)
    keys = {"network": SMALL, "data": DATA, "progress": False, **TRAINING}
    first = vsetune.train(loss=cells.Smooth, **keys)
    cells = notebook.run("FACTOR = 4.0\n" + SECOND)
    second = vsetune.train(loss={"name": cells.Smooth, "fixed": {"margin": 0.2}}, **keys)
    assert second.curve["train_loss"][0] == pytest.approx(2 * first.curve["train_loss"][0], rel=0.2)
    study = small_study(study="with_smooth", losses=["lmh", cells.Smooth])
    assert study.cells == ["vsepp.lmh", "vsepp.smooth"]
    assert study.spec.plugins == [str(with_data / "written" / "loss_smooth")]
    assert isinstance(vsetune.losses.named("smooth", margin=0.1), vsetune.PlainLoss)


def test_classes_of_a_notebook_work_in_a_process_that_never_saw_it(with_data, notebook) -> None:
    notebook.run(CELL)
    cells = notebook.run(f"FACTOR = 3.0\n{SECOND}{NETWORK}")
    folders = small_study(study="elsewhere", losses=["lmh", cells.Smooth], networks=[cells.Tiny]).spec.plugins
    code = (
        "import sys, torch, vsetune; from pathlib import Path; from vsetune.config.plugins import load_plugins; "
        "load_plugins(sys.argv[1:], base=Path()); "
        "tiny = vsetune.networks.named('tiny', width=2, vocabulary_size=5); "
        "images = tiny.encode_images(vsetune.ImageInputs(torch.eye(2)[:, None], torch.tensor([1, 1]))); "
        "print(vsetune.losses.named('smooth', margin=0.1)(torch.eye(4)).item(), images.vectors.shape[1])"
    )
    done = subprocess.run([sys.executable, "-c", code, *folders], capture_output=True, text=True, check=True)
    value, size = done.stdout.split()
    assert float(value) == pytest.approx(vsetune.losses.named("smooth", margin=0.1)(torch.eye(4)).item())
    assert (float(value) > 0, int(size)) == (True, 7)


def test_a_study_goes_on_with_the_class_that_it_began_with(with_data, notebook, monkeypatch, caplog) -> None:
    without_ray(monkeypatch)
    notebook.run(CELL)
    cells = notebook.run("FACTOR = 2.0\n" + SECOND)
    keys = {"study": "goes_on", "losses": [cells.Smooth], "baseline": "smooth", "seeds": [0]}
    began = small_study(**keys).run(progress=False)
    assert "goes on" not in caplog.text
    scores = torch.eye(4)
    value = vsetune.losses.named("smooth")(scores)
    cells = notebook.run("FACTOR = 4.0\n" + SECOND)
    study = small_study(**keys | {"losses": [cells.Smooth]})
    (line,) = [record.getMessage() for record in caplog.records if "goes on with the class" in record.getMessage()]
    (folder,) = study.spec.plugins
    assert folder in line
    assert Path(folder).is_relative_to(with_data / "runs" / "goes_on" / "plugins")
    assert vsetune.losses.named("smooth")(scores) == value
    assert len(study.resume(progress=False).attempts) == len(began.attempts)
    small_study(**keys | {"study": "new_name", "losses": [cells.Smooth]})
    assert vsetune.losses.named("smooth")(scores) == 2 * value


def test_classes_and_keywords_that_cannot_be_trained_are_refused(with_data, notebook) -> None:
    cells = notebook.run(CELL + "import threading\nFACTOR = threading.Lock()\n" + SECOND)
    keys = {"network": SMALL, "data": DATA, **TRAINING}
    with refused("VSE-A003", name="Smooth"):
        vsetune.train(loss=cells.Smooth, **keys)
    cells = notebook.run("class Bare(vsetune.Loss):\n    pass\n")
    with refused("VSE-A002", name="Bare", base="LossSpec"):
        vsetune.train(loss=cells.Bare, **keys)
    with refused("VSE-A004", key="loss", got="int"):
        vsetune.train(loss=3, **keys)
    with refused("VSE-A010", got="-1"):
        vsetune.train(small_study(), seed=-1, progress=False)
    with refused("VSE-A008"):
        vsetune.train(loss="lmh")
    with refused("VSE-A007", key="epochs"):
        vsetune.train(small_study(), epochs=3)
    with pytest.raises(vsetune.UsageError, match="vsepp.lmh"):
        vsetune.train(small_study(), cell="vsepp.lmg", progress=False)


@pytest.mark.parametrize(("change", "begins"), [
    ({"loss": "lmg"}, "train: loss.name: no loss is called lmg"),
    ({"loss": {"nam": "lmh"}}, "train: loss.nam: unknown key"),
    ({"loss": {"name": "lmh", "fixed": {"margn": 0.1}}}, "train: cell vsepp.lmh: loss.margn: unknown key"),
    ({"network": "vsep"}, "train: network.name: no network is called vsep"), ({"network": 3}, "network: got int"),
    ({"data": {"pth": "here"}}, "train: data.pth: unknown key"), ({"data": 3}, "train: data: got 3, need a mapping"),
    ({"losses": ["lmh"]}, "train: losses: unknown key; need network, loss, data or a key of `training`"),
    ({"epochs": -1}, "train: epochs: got -1"), ({"epoch": 2}, "train: epoch: unknown key; did you mean epochs?"),
])
def test_errors_name_the_keywords_that_the_caller_wrote(with_data, change, begins) -> None:
    with pytest.raises(vsetune.ConfigError) as caught:
        vsetune.train(**{"network": SMALL, "data": DATA, "progress": False, **TRAINING, **change})
    (problem,) = caught.value.problems
    assert problem.startswith(begins)
    assert problem.code


def test_a_pickle_of_another_python_is_refused(with_data, notebook, tmp_path: Path) -> None:
    cells = notebook.run(f"{CELL}FACTOR = 2.0\n{SECOND}")
    (folder,) = small_study(study="another", losses=["lmh", cells.Smooth]).spec.plugins
    other = shutil.copytree(folder, tmp_path / "other")
    file = other / "spec.py"
    file.write_text(re.sub(r'python="[0-9.]+"', 'python="3.9"', file.read_text()))
    with refused("VSE-A009", python="3.9"):
        load_plugin(str(other), base=tmp_path)
