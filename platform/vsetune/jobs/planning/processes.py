"""Measurement of every cell in its own process, with as many at a time as trials would run here."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import vsetune
from vsetune.config.spec.foreign_text import one_line
from vsetune.config.spec.paths import home
from vsetune.config.study.cells import Cell, build_trial
from vsetune.config.study.resources import Needs
from vsetune.config.study.study_spec import StudySpec
from vsetune.files.whole_files import make_folder, read_json, write_json
from vsetune.jobs.planning.cell_times import RESULT_FILE, CellTimes

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
                found[each.cell] = _told(each)
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
        "trial": trial.to_plain(), "plugins": study.plugins, "seconds": seconds, "threads": needs.cpus,
        "device": "cuda" if needs.gpus else "cpu", "reading": asdict(study.resources.reading_of(needs)),
    }, durable=False)
    with open(place / _ERRORS_FILE, "w") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "vsetune.jobs.planning.cell_measuring", str(place / _WANTED_FILE)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err, env=_environment(needs), text=True,
        )
    return _Measuring(cell.name, process, place)


def _environment(needs: Needs) -> Mapping[str, str]:
    package_root = str(Path(vsetune.__file__).resolve().parents[1])  # the same code, wherever the process starts
    paths = [package_root, *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {"PYTHONPATH": os.pathsep.join(paths), **dict.fromkeys(_THREADS, str(needs.cpus))}
    return {**os.environ, **_WORKER_ENVIRONMENT, **own}


def _told(ended: _Measuring) -> Measured:
    """The result of an ended process, or why it has none."""
    code, plain = ended.process.returncode, read_json(ended.folder / RESULT_FILE)
    if plain is None:
        said = (ended.folder / _ERRORS_FILE).read_text(errors="replace").strip().splitlines()
        reason = one_line(said[-1]) if said else f"exit code {code}"
        if code == _KILLED:
            reason = "it was killed (out of memory?)"
        return f"could not be measured: {reason}"[:_LONGEST_PROBLEM]
    return str(plain["problem"]) if "problem" in plain else CellTimes(**plain)
