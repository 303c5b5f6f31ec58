"""Everyday commands answer at once: none of them loads what it does not need."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import vsetune

ROOT = Path(vsetune.__file__).parents[2]
HEAVY = {"torch", "ray", "mlflow", "optuna", "pandas", "sklearn", "transformers", "sqlalchemy"}
CODE = """
import sys
from vsetune.cli import main
sys.argv = ["vsetune", *sys.argv[1:]]
try:
    main.run()
except SystemExit as ending:
    if ending.code:
        raise
print("loaded:", *sorted({name.split(".")[0] for name in sys.modules}))
"""


def run(words: Sequence[str], *, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "platform"), "VSETUNE_HOME": str(home)}
    return subprocess.run(
        [sys.executable, "-c", CODE, *words], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )


def loaded_by(*words: str, home: Path) -> set[str]:
    """The packages that a command has loaded when it ends, with exit code 0."""
    done = run(words, home=home)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].removeprefix("loaded:").split())


@pytest.mark.parametrize("words", [
    ["losses", "list"], ["losses", "show", "lseh"], ["networks", "list"], ["networks", "show", "vsepp"],
    ["study", "list"], ["study", "validate", "studies/quickstart.yaml"],
], ids=" ".join)
def test_a_command_loads_nothing_heavy(words: list[str], tmp_path: Path) -> None:
    assert not loaded_by(*words, home=tmp_path) & HEAVY


def test_commands_on_a_recorded_study_and_its_data_load_nothing_heavy(
    study: Callable[..., Path], record: Callable[..., str], home: Path, tmp_path: Path
) -> None:
    record()
    for words in (
        ["study", "validate", str(study())], ["study", "list"], ["study", "show", "tiny"],
        ["trial", "show", "tiny/vsepp.lmh-c000-s0"], ["trial", "curves", "tiny/vsepp.lmh-c000-s0"],
        ["leaderboard", "show", "tiny"], ["leaderboard", "export", "tiny", "--csv", str(tmp_path / "board.csv")],
        ["leaderboard", "export", "tiny", "--latex", str(tmp_path / "board.tex")],
    ):
        assert not loaded_by(*words, home=home) & HEAVY, words


def test_a_network_that_its_data_may_not_fit_is_built_for_the_check(study: Callable[..., Path], record, home) -> None:
    record()
    one_vector = {"name": "vsepp", "fixed": {"image_input": "global", "embedding_size": 16, "word_size": 8}}
    path = study(networks=[one_vector], data={"path": "data/scenes"})
    done = run(["study", "validate", str(path)], home=home)
    assert done.returncode == 2
    assert "VSE-N002" in done.stderr
