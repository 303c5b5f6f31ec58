"""Measurement of a cell: a few real training steps, one validation and the peak memory, in a process of its own.

    python -m vsetune.study.planning.cell_measuring FILE

FILE: JSON with `trial` (a TrialSpec as plain data), `plugins` (folders or modules), `seconds`, `threads`, `device` and
`reading` (a Reading as plain data). Writes RESULT_FILE beside FILE: CellTimes as JSON, or `problem`.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from vsetune.config.plugins import load_installed, load_plugins
from vsetune.config.sources.trial_inputs import STREAMED, Reading
from vsetune.config.study.evaluation_settings import EvaluationSpec
from vsetune.config.study.training import TrialSpec
from vsetune.data.freed_memory import keep_freed_memory
from vsetune.data.stored.dataset import Dataset, evaluated_split, further_tests
from vsetune.errors import one_line
from vsetune.home.addresses import mask_output
from vsetune.home.whole_files import write_json
from vsetune.metrics.recalls import owner_scores
from vsetune.networks.network_base import Network, evaluating
from vsetune.study.planning.cell_times import LONGEST_PROBLEM, RESULT_FILE, CellTimes
from vsetune.training.attempt_progress import Progress
from vsetune.training.batches import TrainingBatches
from vsetune.training.device import choose_device, peak_memory_bytes, reset_peak_memory, use_threads, wait_for
from vsetune.training.failures import failure_of
from vsetune.training.loop import TrainingLoop
from vsetune.training.random_state import RandomState
from vsetune.training.schedule import total_steps
from vsetune.training.step import Learner
from vsetune.training.validation import encode_split, split_scores

_WARM_UP, _MOST = 3, 40
"""Steps: of the warm-up, which makes buffers and the optimizer's state, and the most in the window."""
_SCORED_IMAGES = 100
"""Images that a network which scores every pair is validated on; scoring a whole split may take an hour."""


def measure_cell(
    trial: TrialSpec, *, device: torch.device, seconds: float, reading: Reading = STREAMED
) -> CellTimes:
    """seconds: length of the window of steps; a step that has begun is finished. reading: the source of batches.

    The window lies in the middle of the training, because steps of a warm-up or with frozen parts differ from the rest,
    and ends with the training. NumericError, AttemptError and UsageError as in an attempt.
    """
    keep_freed_memory()
    for _ in range(2):  # a process starts its first trial slower than the later ones
        begin, random = time.perf_counter(), RandomState(trial.seed, device)
        with random.active():
            dataset = Dataset.open(trial.data.path, reading=reading)
            batches = TrainingBatches(trial, dataset, device)
            learner = Learner.build(trial, dataset, device)
            epoch, per_epoch = int(trial.training.epochs / 2), batches.steps_per_epoch
            at = Progress(step=epoch * per_epoch, pairs_seen=epoch * batches.pairs)
            loop = TrainingLoop(trial, learner, batches, at, where=f"cell {trial.cell}")
        start = time.perf_counter() - begin
    reset_peak_memory(device)
    try:
        with random.active():
            left = total_steps(trial.training, per_epoch) - at.step
            left -= take_steps(loop, min(_WARM_UP, left // 2))
            begin = time.perf_counter()
            timed = take_steps(loop, min(_MOST, left), seconds=seconds)
            window = time.perf_counter() - begin
            validation, test, share = time_evaluation(loop.learner.network, dataset, trial, device)
    finally:
        batches.close()
    return CellTimes(
        steps_per_epoch=per_epoch, start=start, step=window / timed if timed else 0.0, steps_timed=timed,
        worked_share=min(1.0, loop.worked_seconds / at.train_seconds) if timed else 1.0,
        validation=validation, test=test, scored_share=share, peak_memory_bytes=peak_memory_bytes(device),
    )


def take_steps(loop: TrainingLoop, most: int, *, seconds: float = float("inf")) -> int:
    """Trains until the time is up, at least one step if any may be taken. Returns how many."""
    done, begin = 0, time.perf_counter()
    while done < most and (not done or time.perf_counter() - begin < seconds):
        loop.begin()
        loop.step()
        done += 1
    loop.settle()
    return done


def time_evaluation(
    network: Network, dataset: Dataset, trial: TrialSpec, device: torch.device
) -> tuple[float, float, float]:
    """Seconds of a validation, seconds of the recalls at the end of a trial, and the share of a validation's pairs that
    were scored.

    Encoding time grows with items, scoring time with pairs. Other scores that `evaluation` asks for are not included.
    """
    own, chosen = trial.data.validation_split, trial.evaluation.validation_images
    split = dataset.split(own)
    images = chosen or split.images
    part = min(images, _SCORED_IMAGES) if network.kind == "score" else images
    chosen = None if part == split.images else part
    with evaluating(network):
        begin = time.perf_counter()
        encoded = encode_split(network, dataset, own, trial=trial, device=device, images=chosen)
        wait_for(device)
        encoding = (time.perf_counter() - begin) / (part + len(encoded.owner))
        begin = time.perf_counter()
        owner_scores(split_scores(network, encoded, trial=trial), encoded.owner)
        wait_for(device)
        scoring = (time.perf_counter() - begin) / (part * len(encoded.owner))

    def seconds(images: float, captions: float) -> float:
        return encoding * (images + captions) + scoring * images * captions

    name = evaluated_split(trial.data, dataset)
    tested = [] if name == own and trial.evaluation == EvaluationSpec() else [(dataset, name)]
    tested += further_tests(trial.data, dataset).values()
    whole = [other.split(name) for other, name in tested]
    return (
        seconds(images, split.captions * images / split.images),
        sum(seconds(each.images, each.captions) for each in whole), (part / images) ** 2,
    )


def measured(wanted: dict[str, Any], base: Path) -> dict[str, Any]:
    """The result of the process: CellTimes as plain data, or `problem`. base: folder of relative plugins."""
    try:
        use_threads(wanted["threads"])
        load_installed()
        load_plugins(wanted["plugins"], base=base)
        trial, device = TrialSpec.model_validate(wanted["trial"]), choose_device(wanted["device"])
        return asdict(measure_cell(
            trial, device=device, seconds=wanted["seconds"], reading=Reading(**wanted["reading"])
        ))
    except Exception as error:  # any error concerns this cell alone, and is reported
        return {"problem": one_line(failure_of(error).text)[:LONGEST_PROBLEM]}


def main(file: Path) -> None:
    """Writes the result file that `cell_times.measure_cells` reads. file: the JSON described above."""
    mask_output()
    wanted = json.loads(file.read_text())
    write_json(file.with_name(RESULT_FILE), measured(wanted, file.parent), durable=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
