"""The first steps at a fixed seed: their losses, the recalls of a validation after them, and the time of a step.

On one machine and one thread losses and recalls are equal bit for bit unless the code changed. Steps are timed with
nothing beside them, which varies less than the times of trials that share a machine.

    python -m vsetune.nightly.first_steps FILE

FILE: JSON with `steps`, `plugins` (folders or modules) and `trials` (TrialSpecs as plain data). Prints JSON: by cell
either `losses` and `recalls`, exact floats, and the `STEP_TIMES`, or `problem`, one line. It is a process of its own
because a process that has trained cannot reduce its threads, and because no earlier work may affect the result.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from vsetune.config.plugins import load_installed, load_plugins
from vsetune.config.study.cells import Cell, build_trial
from vsetune.config.study.study_spec import StudySpec
from vsetune.config.study.training import TrialSpec
from vsetune.data.freed_memory import keep_freed_memory
from vsetune.data.stored.dataset import Dataset
from vsetune.errors import one_line
from vsetune.home.addresses import mask_output
from vsetune.home.whole_files import write_json
from vsetune.nightly.night import STEP_TIME, STEP_TIMES, STEP_WALL_TIME
from vsetune.training.attempt_progress import Progress
from vsetune.training.batches import TrainingBatches
from vsetune.training.calibration import step_timer
from vsetune.training.evaluation import recalls, score_split
from vsetune.training.loop import TrainingLoop
from vsetune.training.random_state import RandomState
from vsetune.training.schedule import total_steps
from vsetune.training.step import Learner
from vsetune.version import import_path

_LONGEST_S = 3600.0
_LONGEST_PROBLEM = 300
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


TIMED, ROUNDS = 20, 3
"""Steps of a timing round, including the first ones that are not timed, and number of rounds over all cells. The
fastest round of a cell counts: brief other load on the machine only makes a round slower."""
_NOT_TIMED = 3
"""First steps left out of the timing: they allocate buffers and the state of the optimizer."""


Steps = dict[str, Any]
"""First steps of one cell. `losses`: one float per step, float32 as exact floats. `recalls`: by name, of the validation
split after the steps; none for a cell whose pairs another network proposes. By name of `STEP_TIMES`: of a step in
calibration steps, the median of the fastest round. A cell that failed has `problem` alone, one line."""
FirstSteps = Mapping[str, Steps]
"""First steps of one night, by cell."""


def take_first_steps(study: StudySpec, cells: Sequence[Cell], *, steps: int, seed: int) -> FirstSteps:
    """The first steps of every cell, run in a process of their own. A cell that fails is a problem of this cell; a
    process that fails is a problem of all cells."""
    trials = [build_trial(study, cell, {}, trial="first-steps", seed=seed).to_plain() for cell in cells]
    with tempfile.TemporaryDirectory(prefix="vsetune-first-steps-") as folder:
        file = Path(folder) / "trials.json"
        write_json(file, {"steps": steps, "plugins": study.plugins, "trials": trials}, durable=False)
        printed = _run(file)
    return {cell.name: {"problem": printed} for cell in cells} if isinstance(printed, str) else printed


def first_steps(trial: TrialSpec, steps: int, *, timed: int = 0) -> Steps:
    """The first steps of a trial on the CPU, fewer where the trial is shorter. No losses and no recalls if steps is 0;
    no times if timed is 0.

    The steps are those of an attempt: the same start, batches, schedule and random numbers. timed: number of steps of
    the timing round, 0 for none. A calibration step is timed between any two steps; a step's time is divided by the
    mean of the calibration steps before and after it.
    """
    keep_freed_memory()
    device, dataset = torch.device("cpu"), Dataset.open(trial.data.path)
    batches, random = TrainingBatches(trial, dataset, device), RandomState(trial.seed, device)
    calibration_step, after = step_timer(), None
    losses: list[float] = []
    times: dict[str, list[float]] = {name: [] for name in STEP_TIMES}

    try:
        with random.active():
            learner = Learner.build(trial, dataset, device)
            loop = TrainingLoop(trial, learner, batches, Progress(), where=f"cell {trial.cell}")
            last = min(max(steps, timed), total_steps(trial.training, batches.steps_per_epoch))
            for step in range(last):
                loop.begin()
                is_timed = min(_NOT_TIMED, last - 1) <= step < timed
                before = after or (calibration_step() if is_timed else None)
                seconds = loop.step()
                losses.append(seconds.loss.item())
                if is_timed and before is not None:
                    after = calibration_step()
                    times[STEP_TIME].append(2 * seconds.worked / (before.worked + after.worked))
                    times[STEP_WALL_TIME].append(2 * (seconds.load + seconds.train) / (before.passed + after.passed))
            found = _recalls(loop.learner, dataset, trial) if steps else {}
    finally:
        batches.close()
    medians = {name: statistics.median(seconds) for name, seconds in times.items() if seconds}
    return {"losses": losses[:steps], "recalls": found, **medians}


def _recalls(learner: Learner, dataset: Dataset, trial: TrialSpec) -> dict[str, float]:
    if trial.evaluation.rerank is not None:
        return {}
    split, images = trial.data.validation_split, trial.evaluation.validation_images
    scores = score_split(learner.network, dataset, split, trial=trial, device=torch.device("cpu"), images=images)
    return recalls(scores)


def _run(file: Path) -> dict[str, dict[str, Any]] | str:
    """The JSON that the process printed, or in one line why there is none."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "vsetune.nightly.first_steps", str(file)], capture_output=True, text=True,
            timeout=_LONGEST_S, check=False, env={**os.environ, **_ONE_THREAD, "PYTHONPATH": import_path()},
        )
    except subprocess.TimeoutExpired:
        return f"the first steps did not end within {_LONGEST_S:g} s"
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return f"the first steps could not be taken: {one_line(last)[:_LONGEST_PROBLEM]}"
    printed: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return printed


def rounds(trials: Sequence[dict[str, Any]], steps: int) -> dict[str, Steps]:
    """The first steps of every trial by cell, timed in rounds over all of them. trials: TrialSpecs as plain data."""
    found: dict[str, Steps] = {}
    for number in range(ROUNDS):
        for plain in trials:
            cell = found.setdefault(plain["cell"], {})
            if "problem" in cell:
                continue
            try:
                taken = first_steps(TrialSpec.model_validate(plain), 0 if number else steps, timed=TIMED)
                fastest = {name: min(taken[name], cell.get(name, math.inf)) for name in STEP_TIMES}
                found[plain["cell"]] = {**taken, **cell, **fastest}
            except Exception as error:  # any failure concerns this cell alone and is reported
                found[plain["cell"]] = {"problem": f"{type(error).__name__}: {one_line(error)}"[:_LONGEST_PROBLEM]}
    return found


def main(file: Path) -> None:
    """Print the JSON that `take_first_steps` reads."""
    mask_output()
    torch.set_num_threads(1)
    wanted = json.loads(file.read_text())
    load_installed()
    load_plugins(wanted["plugins"], base=file.parent)
    sys.stdout.write(json.dumps(rounds(wanted["trials"], wanted["steps"])))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
