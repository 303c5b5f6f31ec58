"""Everyday commands answer at once: none of them loads what it does not need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import vsetune

ROOT = Path(vsetune.__file__).parents[2]
HEAVY = {"torch", "ray", "mlflow", "optuna", "pandas", "sklearn", "transformers", "sqlalchemy"}
CODE = """
import json, sys
from vsetune.cli import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["vsetune", *words]
    try:
        main.run()
    except SystemExit as ending:
        if ending.code:
            raise
    print("loaded:", *words, "|", *sorted({name.split(".")[0] for name in sys.modules}))
"""


def run(*commands: Sequence[str], home: Path) -> subprocess.CompletedProcess[str]:
    """Commands one after another in one new process, until one fails."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "platform"), "VSETUNE_HOME": str(home)}
    return subprocess.run(
        [sys.executable, "-c", CODE, json.dumps(commands)], env=environment, cwd=ROOT, capture_output=True, text=True,
        check=False,
    )


def test_everyday_commands_load_nothing_heavy(
    study: Callable[..., Path], record: Callable[..., str], home: Path, tmp_path: Path
) -> None:
    """The catalogue, and a recorded study with its data."""
    record()
    commands = [
        ["losses", "list"], ["losses", "show", "lseh"], ["networks", "list"], ["networks", "show", "vsepp"],
        ["study", "list"], ["study", "validate", "studies/quickstart.yaml"],
        ["study", "validate", str(study())], ["study", "show", "tiny"],
        ["trial", "show", "tiny/vsepp.lmh-c000-s0"], ["trial", "curves", "tiny/vsepp.lmh-c000-s0"],
        ["leaderboard", "show", "tiny"], ["leaderboard", "export", "tiny", "--csv", str(tmp_path / "board.csv")],
        ["leaderboard", "export", "tiny", "--latex", str(tmp_path / "board.tex")],
    ]
    done = run(*commands, home=home)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("loaded:")]
    assert len(lines) == len(commands)
    for line in lines:  # the first one tells which command it was
        assert not set(line.partition("|")[2].split()) & HEAVY, line.partition("|")[0]


def test_a_network_that_its_data_may_not_fit_is_built_for_the_check(study: Callable[..., Path], record, home) -> None:
    record()
    one_vector = {"name": "vsepp", "fixed": {"image_input": "global", "embedding_size": 16, "word_size": 8}}
    done = run(["study", "validate", str(study(networks=[one_vector], data={"path": "data/scenes"}))], home=home)
    assert done.returncode == 2
    assert "VSE-N002" in done.stderr
