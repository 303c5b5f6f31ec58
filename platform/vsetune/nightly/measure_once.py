"""Measures a nightly sweep in this process, without Ray, history and tracking store: what `bisect` runs of a revision.

    python -m vsetune.nightly.measure_once FILE --cell CELL --seeds 1 2     {"values": {measure: number}}
    python -m vsetune.nightly.measure_once FILE --first-losses [--cell CELL]   {cell: {"losses": [...], "step_time": 1}}

FILE is read by the code of the revision, so that its defaults count. Data are those under VSETUNE_HOME, made if the
file asks for scenes. Prints one line of JSON; a cell without losses has `problem`, one line, instead.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from vsetune.config.study.cells import Cell, build_trial
from vsetune.errors import UsageError, VsetuneError
from vsetune.nightly import messages
from vsetune.nightly.first_steps import FirstSteps, take_first_steps
from vsetune.nightly.measuring import cell_nights
from vsetune.nightly.night import known_option
from vsetune.nightly.nightly_spec import NightlySpec, load_nightly
from vsetune.records.events import AttemptRecord, AttemptStart
from vsetune.storage.addresses import mask_output
from vsetune.study.first_stages import kept_stage
from vsetune.study.preparation import PreparedStudy, prepare_spec
from vsetune.study.trial_measures import TrialMeter
from vsetune.training.attempt import Attempt
from vsetune.training.device import choose_device

_STUDY = "measure-once"


def measured_values(file: Path, cell: str, seeds: Sequence[int]) -> dict[str, float]:
    """The measures of one cell, means over the seeds. UsageError: unknown cell. AttemptError: a trial failed."""
    spec, prepared = _prepared(file, seeds)
    chosen = _cell(prepared, cell)
    with tempfile.TemporaryDirectory(prefix="vsetune-measure-") as folder:
        records = [_trained(prepared, chosen, seed, Path(folder) / str(seed)) for seed in seeds]
    measured = cell_nights(records, [cell], seeds=len(seeds), target=spec.target, first={})
    return dict(measured[cell].values)


def measured_first_losses(file: Path, cell: str | None) -> FirstSteps:
    """The first losses by cell, of every cell or of one: `losses`, `recalls` and the times of a step, or `problem`, one
    line."""
    spec, prepared = _prepared(file, [0])
    cells = prepared.cells if cell is None else [_cell(prepared, cell)]
    return take_first_steps(prepared.spec, cells, steps=spec.first_steps.steps, seed=spec.first_steps.seed)


def _prepared(file: Path, seeds: Sequence[int]) -> tuple[NightlySpec, PreparedStudy]:
    spec = load_nightly(file)
    return spec, prepare_spec(spec.study(_STUDY, list(seeds)), Console(stderr=True), where=str(file))


def _cell(prepared: PreparedStudy, name: str) -> Cell:
    cells = {each.name: each for each in prepared.cells}
    return cells[known_option("--cell", name, cells)]


def _trained(prepared: PreparedStudy, cell: Cell, seed: int, folder: Path) -> AttemptRecord:
    """One trial, trained as by a worker of the night, with calibration products beside every window."""
    resources = prepared.spec.resources
    device = "cuda" if resources.gpus else "cpu"
    trial = build_trial(prepared.spec, cell, cell.defaults(), trial=f"{cell.name}-s{seed}", seed=seed)
    meter = TrialMeter(choose_device(device), calibrates=True)
    first = kept_stage(trial, prepared.trial_folder(trial.trial))
    reading = resources.reading_of(resources.needs_of(trial.network.name, trial.loss.name))
    attempt = Attempt(trial, folder, device=device, threads=resources.cpus, first_stage=first, reading=reading)
    meter.opened()
    while not attempt.is_finished:
        meter.around(attempt.advance, attempt.history, lambda: attempt.worked_seconds)
    start = AttemptStart(
        _STUDY, trial.trial, cell.name, trial.network.name, "loss", 1, seed, "search", {}, trial.to_plain(),
    )
    curve = tuple((point.epoch, point.m_recall) for point in attempt.history)
    return AttemptRecord(trial.trial, start, "finished", curve, attempt.finish() | meter.summary())


def main(words: Sequence[str]) -> int:
    """Prints one line of JSON; exit code 0, or 1 with the reason in one line on stderr."""
    mask_output()
    parser = argparse.ArgumentParser(prog="python -m vsetune.nightly.measure_once", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--cell")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--first-losses", action="store_true")
    given = parser.parse_args(words)
    try:
        if given.first_losses:
            plain: Any = measured_first_losses(given.file, given.cell)
        elif given.cell is None:
            raise UsageError(messages.OPTION_MISSING(option="--cell", need="network.loss of the sweep"))
        else:
            plain = {"values": measured_values(given.file, given.cell, given.seeds)}
    except VsetuneError as error:
        sys.stderr.write(" ".join(str(error).split()) + "\n")
        return 1
    sys.stdout.write(json.dumps(plain) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
