"""What `bisect` runs of a revision: the numbers of one cell, and the first losses of all."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from night_files import PLAIN
from rich.console import Console

import vsetune
from vsetune.errors import UsageError
from vsetune.nightly.first_steps import take_first_steps
from vsetune.nightly.measure_once import measured_values
from vsetune.nightly.night import BY_NAME, STEP_TIMES
from vsetune.nightly.nightly_spec import load_nightly
from vsetune.study.preparation import prepare_spec


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    file = tmp_path / "nightly.yaml"
    file.write_text(yaml.safe_dump(PLAIN))
    return file


def test_one_cell_gives_every_measure_and_recalls_repeat_with_their_seed(
    sweep: Path, extractors_made_once: None
) -> None:
    first, other, both = (measured_values(sweep, "vsepp.lmh", seeds) for seeds in ([3], [4], [3, 4]))
    assert set(first) == set(BY_NAME) - set(STEP_TIMES)  # which are taken with the first losses
    assert first["m_recall_area"] != other["m_recall_area"]
    for name in ("best_m_recall", "epochs_to_target", "m_recall_area"):
        assert both[name] == pytest.approx((first[name] + other[name]) / 2)
    with pytest.raises(UsageError, match="^--cell: "):
        measured_values(sweep, "vsepp.lm", [0])


@pytest.mark.slow  # processes that import torch
def test_as_a_program_it_prints_the_first_losses_that_a_night_takes(sweep: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(vsetune.__file__).parents[1])}
    words = [sys.executable, "-m", "vsetune.nightly.measure_once", str(sweep)]
    done = subprocess.run([*words, "--first-losses"], env=environment, capture_output=True, text=True, check=True)
    spec = load_nightly(sweep)
    prepared = prepare_spec(spec.study("check", [0]), Console(file=io.StringIO()), where=str(sweep))
    taken = take_first_steps(prepared.spec, prepared.cells, steps=20, seed=0)
    found = json.loads(done.stdout)["vsepp.lmh"]
    assert found["losses"] == taken["vsepp.lmh"]["losses"]
    assert all(found[name] > 0 for name in STEP_TIMES)
    wrong = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stderr.count("\n")) == (1, 1)
    assert "--cell: missing" in wrong.stderr
