"""Times of every cell, each measured in its own process, and the duration of trials computed from them."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from vsetune.config.study.cells import Cell, build_trial
from vsetune.config.study.resources import Needs
from vsetune.config.study.study_spec import StudySpec
from vsetune.config.study.training import TrainingSpec
from vsetune.errors import one_line
from vsetune.storage.paths import home
from vsetune.storage.whole_files import make_folder, read_json, write_json
from vsetune.training.schedule import total_steps
from vsetune.version import import_path

RESULT_FILE = "measured.json"
"""File with the result of the process that measured a cell."""


@dataclass(frozen=True)
class CellTimes:
    """Wall-clock seconds of a cell at its defaults, measured in one process of its own.

    first_start, start: until the first step (open the data, make the network, read tables), for the first trial in a
    process and for a later one. opening: start of an epoch (its readers, and the loss's work per epoch). step: one
    training step including its batch, the mean of `steps_timed` over the phases of the training. worked_share: share of
    the steps' time in which the process computed; in the rest it waited for other work of this machine or for data.
    validation: of the whole validation split. test: at the end of a trial, 0 if nothing is scored then. checkpoint: of
    one, after a validation. encoded_share, scored_share: shares of the validation that were timed, 1 for all of it.
    peak_memory_bytes: of the process, on a GPU of its tensors; None if unknown.
    """

    steps_per_epoch: int
    first_start: float
    start: float
    opening: float
    step: float
    steps_timed: int
    worked_share: float
    validation: float
    test: float
    checkpoint: float
    encoded_share: float
    scored_share: float
    peak_memory_bytes: int | None

    @property
    def is_scaled(self) -> bool:
        """Whether the validation was timed on a part of the split."""
        return min(self.encoded_share, self.scored_share) < 0.999


@dataclass(frozen=True)
class TrialSeconds:
    """Seconds of one whole trial in a process that has run others before. training: steps, and opening each epoch.
    recording: writing checkpoints and waiting until validations are recorded. ending: the test split."""

    start: float
    training: float
    validating: float
    recording: float
    ending: float

    @property
    def total(self) -> float:
        """Seconds of the whole trial."""
        return self.start + self.training + self.validating + self.recording + self.ending


def trial_seconds(
    training: TrainingSpec, times: CellTimes, *, report: float, checkpoint_share: float
) -> TrialSeconds:
    """Duration of a trial that is not stopped. report: seconds that it waits until a validation is recorded.
    checkpoint_share: the most of its time that checkpoints may take."""
    steps = total_steps(training, times.steps_per_epoch)
    validations = validations_of(training, times.steps_per_epoch)
    trained = steps * times.step + math.ceil(steps / times.steps_per_epoch) * times.opening
    validated = validations * times.validation
    checkpoints = checkpoints_of(validations, (trained + validated) / validations, times.checkpoint, checkpoint_share)
    return TrialSeconds(
        start=times.start, training=trained, validating=validated,
        recording=checkpoints * times.checkpoint + validations * report, ending=times.test,
    )


def checkpoints_of(validations: int, apart: float, takes: float, share: float) -> int:
    """How many checkpoints a trial writes by the rule of `CheckpointPace`: at the first validation, at each one that is
    late enough after the last checkpoint, and at the last. apart: seconds between validations. takes: seconds per
    checkpoint. share: the most of the time that checkpoints may take."""
    every = max(1, math.ceil(takes * (1 / share - 1) / apart - 1e-9)) if apart > 0 else validations
    return 1 + math.ceil((validations - 1) / every)


def validations_of(training: TrainingSpec, steps_per_epoch: int) -> int:
    """Number of validations of a whole trial, by the rule of `schedule.next_validation`."""
    steps, every = total_steps(training, steps_per_epoch), training.validate_every_steps
    count = steps // steps_per_epoch
    is_at_the_end = steps % steps_per_epoch == 0
    if every is not None:
        count += steps // every - steps // math.lcm(every, steps_per_epoch)
        is_at_the_end = is_at_the_end or steps % every == 0
    return count if is_at_the_end and steps else count + 1


def cheaper_cadence(times: CellTimes) -> int | None:
    """The fewest steps between validations at which validating takes at most as long as the training between them.

    Rounded up to a multiple of half its power of ten (of 50 for three digits). None if even one validation an epoch,
    the fewest possible, takes longer.
    """
    steps = math.ceil(times.validation / times.step - 1e-9)
    unit = max(1, 10 ** (len(str(steps)) - 1) // 2)
    rounded = -(-steps // unit) * unit
    return rounded if rounded <= times.steps_per_epoch else None


_WANTED_FILE, _ERRORS_FILE = "wanted.json", "errors.txt"
_LOOK_EVERY_S = 0.05
_LONGEST_PROBLEM = 300
_KILLED = -9
_WORKER_ENVIRONMENT = {"MALLOC_ARENA_MAX": "2"}
"""The same as for workers, see `jobs.cluster`."""
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

Measured = CellTimes | str
"""The times of a cell, or one line on why it could not be measured."""


@dataclass(frozen=True)
class Progress:
    """Progress of the measurement. ended: how many cells are done. running: names of those being measured."""

    ended: int
    running: Sequence[str]


@dataclass
class _Measuring:
    cell: str
    process: subprocess.Popen[str]
    folder: Path


def measure_cells(
    study: StudySpec, cells: Sequence[Cell], *, seconds: float, at_once: int, on_progress: Callable[[Progress], None],
) -> dict[str, Measured]:
    """By cell, the times of a trial at the cell's defaults. seconds: about how long steps and validation of a cell run.

    at_once: cells at a time, so that they compete for the machine as trials will. No process is left when this ends,
    even by Ctrl-C.
    """
    found: dict[str, Measured] = {}
    waiting = list(reversed(cells))
    make_folder(home())
    with tempfile.TemporaryDirectory(prefix="vsetune-plan-", dir=home()) as folder, _ended_at_last() as running:
        while waiting or running:
            while waiting and len(running) < at_once:
                cell = waiting.pop()
                running.append(_begin(study, cell, Path(folder), seconds=seconds))
                on_progress(Progress(len(found), [each.cell for each in running]))
            for each in [each for each in running if each.process.poll() is not None]:
                found[each.cell] = _result_of(each)
                running.remove(each)
                on_progress(Progress(len(found), [other.cell for other in running]))
            time.sleep(_LOOK_EVERY_S)
    return {cell.name: found[cell.name] for cell in cells}


@contextmanager
def _ended_at_last() -> Iterator[list[_Measuring]]:
    running: list[_Measuring] = []
    try:
        yield running
    finally:
        for each in running:
            each.process.kill()
        for each in running:
            each.process.wait()


def _begin(study: StudySpec, cell: Cell, folder: Path, *, seconds: float) -> _Measuring:
    needs = study.resources.needs_of(cell.network_name, cell.loss_name)
    place = folder / cell.name
    make_folder(place)
    trial = build_trial(study, cell, {}, trial="plan", seed=study.seeds[0])
    write_json(place / _WANTED_FILE, {
        "trial": trial.to_plain(), "plugins": study.plugins, "seconds": seconds, "threads": needs.threads,
        "device": "cuda" if needs.gpus else "cpu", "reading": asdict(study.resources.reading_of(needs)),
    }, durable=False)
    with open(place / _ERRORS_FILE, "w") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "vsetune.study.planning.cell_measuring", str(place / _WANTED_FILE)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err, env=_environment(needs), text=True,
        )
    return _Measuring(cell.name, process, place)


def _environment(needs: Needs) -> Mapping[str, str]:
    own = {"PYTHONPATH": import_path(), **dict.fromkeys(_THREADS, str(needs.threads))}
    return {**os.environ, **_WORKER_ENVIRONMENT, **own}


def _result_of(ended: _Measuring) -> Measured:
    """The result of an ended process, or why it has none."""
    code, plain = ended.process.returncode, read_json(ended.folder / RESULT_FILE)
    if plain is None:
        printed = (ended.folder / _ERRORS_FILE).read_text(errors="replace").strip().splitlines()
        reason = one_line(printed[-1]) if printed else f"exit code {code}"
        if code == _KILLED:
            reason = "it was killed (out of memory?)"
        return f"could not be measured: {reason}"[:_LONGEST_PROBLEM]
    return str(plain["problem"]) if "problem" in plain else CellTimes(**plain)
