"""Runs the command line in this process, as the `vsetune` command does, exit code and all."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from vsetune.cli import output
from vsetune.cli.main import _exit_code
from vsetune.config.study.cells import build_trial
from vsetune.config.study.study_spec import ScenesSpec
from vsetune.records.events import AttemptStart, StudyRecord
from vsetune.records.log import LogWriter
from vsetune.records.studies import folder_of_study
from vsetune.records.writer import StudyWriter
from vsetune.study.kept_plugins import keep_plugins
from vsetune.study.preparation import make_scenes, prepare_study
from vsetune.training.attempt import TrainingAttempt


@pytest.fixture(autouse=True)
def _made_once(extractors_made_once: None) -> None:
    """Most commands here make a tiny data set."""


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.strip()]

    def refused(self, *words: str, code: int = 2) -> bool:
        """Whether the command ended with this exit code and one line, beside progress bars, that has all words, and the
        codes of messages."""
        lines = [line for line in self.lines if "━" not in line]
        assert (self.code, len(lines)) == (code, 1), self
        (line,) = lines
        assert line.startswith("failed " if code == 1 else "error "), line
        for word in words:
            assert (f" {word}: " if re.fullmatch(r"VSE-[A-Z]\d{3}", word) else word) in line, line
        return True


@pytest.fixture
def vsetune(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    monkeypatch.setenv("COLUMNS", "200")
    for console in (output.results, output.stderr):  # a width found at import (pytest-xdist sets COLUMNS) would stay
        monkeypatch.setattr(console, "_width", None)

    def run(*words: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["vsetune", *words])
        capfd.readouterr()
        try:
            code = _exit_code()
        except SystemExit as left:
            code = int(left.code or 0)
        said = capfd.readouterr()
        return Said(code, said.out, said.err)

    return run


@pytest.fixture
def home() -> Path:
    return Path(os.environ["VSETUNE_HOME"])


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    """A folder with a BERT of two layers, 12 wide, random weights, and its tokeniser."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path / "bert"
    folder.mkdir()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "small", "red", "green", "blue", "circle", "square"]
    (folder / "vocab.txt").write_text("\n".join(words))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=20,
        max_position_embeddings=64,
    )
    transformers.BertModel(config).save_pretrained(folder)
    return folder


SCENES = {"train": 24, "validation": 8, "test": 8}


@pytest.fixture(scope="session")
def scenes_made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data set of most studies here, to be copied."""
    folder = tmp_path_factory.mktemp("made") / "scenes"
    make_scenes(str(folder), ScenesSpec(**SCENES), Console(quiet=True))
    return folder


@pytest.fixture
def study(tmp_path: Path) -> Callable[..., Path]:
    def write(**changes: Any) -> Path:
        plain: dict[str, Any] = {
            "study": "tiny", "data": {"path": "data/scenes", "scenes": SCENES},
            "networks": [{"name": "vsepp", "fixed": {"embedding_size": 16, "word_size": 8}}],
            "losses": [{"name": "lmh"}], "training": {"epochs": 1, "batch_size": 40, "learning_rate": 1e-3},
        }
        path = tmp_path / "study.yaml"
        path.write_text(yaml.safe_dump(plain | changes))
        return path

    return write


@pytest.fixture
def opened() -> Iterator[Callable[[StudyRecord], StudyWriter]]:
    """opened(record): begins a study in VSETUNE_HOME as its driver does, which nothing says is alive."""
    with ExitStack() as logs:

        def open_study(record: StudyRecord) -> StudyWriter:
            log = LogWriter(folder_of_study(record.name))
            logs.callback(log.close)
            writer = StudyWriter(log)
            writer.open_study(record, resume=False)
            return writer

        yield open_study


@pytest.fixture
def record(study: Callable[..., Path], scenes_made_once: Path) -> Callable[..., str]:
    """record(network): trains a cell for an epoch, records it as a driver would; gives the attempt's id."""

    scenes = Path(os.environ["VSETUNE_HOME"], "data", "scenes")

    def train(
        network: dict[str, Any] | None = None, *, name: str = "tiny", seed: int = 0, status: str = "finished",
        error: str | None = None, keep: bool = True, **changes: Any,
    ) -> str:
        if not scenes.exists() and "data" not in changes:
            shutil.copytree(scenes_made_once, scenes)
        entry = network or {"name": "vsepp", "fixed": {"embedding_size": 16, "word_size": 8}}
        prepared = prepare_study(study(study=name, networks=[entry], **changes), Console(file=io.StringIO()))
        (cell,) = prepared.cells
        trial = build_trial(prepared.spec, cell, cell.defaults(), trial=f"{cell.name}-c000-s{seed}", seed=seed)
        keep_plugins(prepared.plugins, prepared.folder)
        attempt = TrainingAttempt(trial, prepared.trial_folder(trial.trial), device="cpu", threads=1)
        log = LogWriter(prepared.folder)
        store = StudyWriter(log)
        store.open_study(prepared.record(), resume=True)
        run = store.start_attempt(AttemptStart(
            study=name, trial=trial.trial, number=attempt.number, cell=cell.name, network=trial.network.name,
            loss="lmh", seed=seed, phase="search", configuration={"loss.margin": 0.2}, resolved=trial.to_plain(),
            environment=attempt.environment(), protocol=attempt.protocol(),
        ))
        while not attempt.is_finished:
            store.record_points(run, [attempt.advance()])
        summary = attempt.finish()
        files = [f"trials/{trial.trial}/{attempt.best_path.name}"] if keep else []
        store.finish_attempt(run, status, summary=summary, files=files, error=error)
        store.finish_study("finished")
        log.close()
        return run

    return train
