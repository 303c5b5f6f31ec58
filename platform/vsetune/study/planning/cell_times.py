"""Times and memory of every cell, each measured in its own process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from vsetune.config.study.cells import Cell, build_trial
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import one_line
from vsetune.home.paths import home
from vsetune.home.whole_files import make_folder, read_json, write_json
from vsetune.version import import_path

RESULT_FILE, LONGEST_PROBLEM = "measured.json", 300
_WANTED_FILE, _ERRORS_FILE = "wanted.json", "errors.txt"
_KILLED = -9
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class CellTimes:
    """Wall-clock seconds of a cell at its defaults, measured in one process of its own.

    start: until the training can begin (open the data, make the network, read tables), in a process that has run a
    trial before. step: one training step with its batch, the mean of `steps_timed` in the middle of the training.
    worked_share: share of the steps' time in which the process computed; in the rest it waited for other work of this
    machine. validation: one, of a whole trial. test: at the end of a trial, 0 if nothing is scored then. scored_share:
    share of a validation's pairs that were scored to time it. peak_memory_bytes: of the process, on a GPU of its
    tensors; None if unknown.
    """

    steps_per_epoch: int
    start: float
    step: float
    steps_timed: int
    worked_share: float
    validation: float
    test: float
    scored_share: float
    peak_memory_bytes: int | None


def measure_cells(
    study: StudySpec, cells: Sequence[Cell], *, seconds: float, at_once: int, on_progress: Callable[[str], None]
) -> dict[str, CellTimes | str]:
    """By cell, the times of a trial at the cell's defaults, or one line on why it could not be measured.

    at_once: cells at a time, so that they compete for the machine as trials will. No process is left when this ends,
    even by Ctrl-C.
    """
    found: dict[str, CellTimes | str] = {}
    make_folder(home())
    with tempfile.TemporaryDirectory(prefix="vsetune-plan-", dir=home()) as folder:
        for first in range(0, len(cells), at_once):
            some = cells[first : first + at_once]
            on_progress(f"measuring: {first} of {len(cells)} cells; now {', '.join(cell.name for cell in some)}")
            with ExitStack() as running:
                begun = [_begin(study, cell, Path(folder) / cell.name, seconds, running) for cell in some]
                for cell, process in zip(some, begun, strict=True):
                    found[cell.name] = _result(process.wait(), Path(folder) / cell.name)
    return found


def _begin(
    study: StudySpec, cell: Cell, folder: Path, seconds: float, running: ExitStack
) -> subprocess.Popen[bytes]:
    needs = study.resources.needs_of(cell.network_name, cell.loss_name)
    make_folder(folder)
    write_json(folder / _WANTED_FILE, {
        "trial": build_trial(study, cell, {}, trial="plan", seed=study.seeds[0]).to_plain(), "plugins": study.plugins,
        "seconds": seconds, "threads": needs.threads, "device": "cuda" if needs.gpus else "cpu",
        "reading": asdict(study.resources.reading_of(needs)),
    }, durable=False)
    own = {"MALLOC_ARENA_MAX": "2", "PYTHONPATH": import_path(), **dict.fromkeys(_THREADS, str(needs.threads))}
    command = [sys.executable, "-m", "vsetune.study.planning.cell_measuring", str(folder / _WANTED_FILE)]
    with open(folder / _ERRORS_FILE, "w") as errors:
        process = running.enter_context(subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, env={**os.environ, **own}
        ))
    running.callback(process.kill)
    return process


def _result(code: int, folder: Path) -> CellTimes | str:
    """The result of a process that ended with this code, or why it has none."""
    plain = read_json(folder / RESULT_FILE)
    if plain is None:
        printed = (folder / _ERRORS_FILE).read_text(errors="replace").strip().splitlines()
        reason = one_line(printed[-1]) if printed else f"exit code {code}"
        if code == _KILLED:
            reason = "it was killed (out of memory?)"
        return f"could not be measured: {reason}"[:LONGEST_PROBLEM]
    return str(plain["problem"]) if "problem" in plain else CellTimes(**plain)
