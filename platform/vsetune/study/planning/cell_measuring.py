"""Measurement of a cell: times a few real steps, one validation and one checkpoint on this machine.

    python -m vsetune.study.planning.cell_measuring FILE

FILE: JSON with `trial` (a TrialSpec as plain data), `plugins` (folders or modules), `seconds`, `threads`, `device` and
`reading` (a Reading as plain data).
Writes RESULT_FILE beside FILE: CellTimes as JSON, or `problem`. It runs in its own process, because the peak memory of
the process is measured, and because trials run in their own processes too.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from vsetune.config.plugins import load_installed, load_plugins
from vsetune.config.sources.trial_inputs import STREAMED, Reading
from vsetune.config.study.evaluation_settings import EvaluationSpec
from vsetune.config.study.training import TrainingSpec, TrialSpec, phase_starts
from vsetune.data.freed_memory import keep_freed_memory
from vsetune.data.stored.dataset import Dataset, evaluated_split, further_tests
from vsetune.errors import one_line
from vsetune.metrics.recalls import owner_scores
from vsetune.networks.encoded import Encoded
from vsetune.networks.network_base import Network, evaluating
from vsetune.storage.addresses import mask_output
from vsetune.storage.whole_files import write_json
from vsetune.study.planning.cell_times import RESULT_FILE, CellTimes
from vsetune.training.attempt_progress import Progress
from vsetune.training.batches import TrainingBatches
from vsetune.training.checkpoint import CheckpointFolder
from vsetune.training.device import choose_device, peak_memory_bytes, reset_peak_memory, use_threads, wait_for
from vsetune.training.failures import failure_of
from vsetune.training.loop import TrainingLoop
from vsetune.training.random_state import RandomState
from vsetune.training.step import Learner
from vsetune.training.validation import CostOfPair, EncodedSplit, encode_split, pair_scores, split_scores

_WARM_UP, _FEWEST, _MOST = 3, 2, 40
"""Numbers of steps: for warm-up, which makes buffers and the optimizer's state; fewest and most timed in a phase."""
_FOR_STEPS = 0.4
"""Share of a cell's seconds for steps; the rest goes to the validation."""
_LONGEST_PROBLEM = 300


@dataclass(frozen=True)
class _TimedSteps:
    """Seconds of an epoch's opening and of a step, means over the phases of the training; see `CellTimes`."""

    opening: float
    step: float
    count: int
    worked_share: float


@dataclass
class _Run:
    """Seconds of some steps. opening: of the epoch, with its first batch; steps: of each step, with its batch but
    without the opening of an epoch; trained, worked: sums without batches, of wall-clock and of processor seconds."""

    opening: float = 0.0
    steps: list[float] = field(default_factory=list)
    trained: float = 0.0
    worked: float = 0.0


class _Steps:
    """Steps of an attempt, run from any place in its training. To be used inside the trial's random state."""

    def __init__(self, trial: TrialSpec, device: torch.device, reading: Reading) -> None:
        self.dataset = Dataset.open(trial.data.path, reading=reading)
        self.device, self._last = device, trial.training.epochs
        self.batches = TrainingBatches(trial, self.dataset, device)
        learner = Learner.build(trial, self.dataset, device)
        self._loop = TrainingLoop(trial, learner, self.batches, Progress(), where=f"cell {trial.cell}")

    @property
    def learner(self) -> Learner:
        return self._loop.learner

    def run(self, epoch: float, *, fewest: int, most: int, seconds: float) -> _Run:
        """Runs steps from the start of the epoch; after its end, it begins again. On a GPU, where steps run
        asynchronously, only the sum of the steps is exact."""
        per_epoch, done, progress = self.batches.steps_per_epoch, _Run(), self._loop.progress
        begin = time.perf_counter()
        while len(done.steps) < fewest or (len(done.steps) < most and time.perf_counter() - begin < seconds):
            place = len(done.steps) % per_epoch
            progress.step = int(epoch) * per_epoch + place
            pairs = min(epoch + place / per_epoch, self._last) * self.batches.pairs
            progress.pairs_seen = math.ceil(pairs - 1e-6)  # a phase begins at a fraction of an epoch
            if not done.steps:
                self._loop.begin()
                done.opening = time.perf_counter() - begin
            took = self._loop.step()
            if not done.steps:
                done.opening += took.load
            done.worked += took.worked
            done.trained += took.train
            done.steps.append(took.train + (took.load if place else 0.0))  # the first of an epoch opens its shards
            if self.device.type == "cuda" and not len(done.steps) % 10:
                done.steps[-1] += self._loop.settle()
        done.steps[-1] += self._loop.settle()
        return done


def measure_cell(
    trial: TrialSpec, *, device: torch.device, seconds: float, folder: Path, reading: Reading = STREAMED
) -> CellTimes:
    """Times a trial of a cell for about `seconds`, not counting its start. A step, a batch and a block of a validation
    that have begun are always finished. folder: for a temporary checkpoint. reading: the source of batches.

    NumericError, AttemptError and UsageError as in an attempt.
    """
    keep_freed_memory()
    reset_peak_memory(device)
    begin = time.perf_counter()
    with RandomState(trial.seed, device).active():
        steps = _Steps(trial, device, reading)
        try:
            built = time.perf_counter() - begin
            first_start = built + steps.run(0, fewest=1, most=_WARM_UP, seconds=_FOR_STEPS * seconds / 2).opening
            begin = time.perf_counter()
            timed = _time_steps(steps, trial, seconds=_FOR_STEPS * seconds)
            checkpoint = _time_checkpoint(steps, trial, folder)
            left = max(seconds / 2, seconds - (time.perf_counter() - begin))
            validation = time_validation(steps.learner.network, steps.dataset, trial, device, seconds=left)
        finally:
            steps.batches.close()
        test, per_epoch = _test_seconds(validation, steps.dataset, trial), steps.batches.steps_per_epoch
        peak = peak_memory_bytes(device)
        del steps
        start = first_start if first_start > 2 * seconds else _start_again(trial, device, reading)
    return CellTimes(
        steps_per_epoch=per_epoch, first_start=first_start, start=max(0.0, min(first_start, start) - timed.opening),
        opening=timed.opening, step=timed.step, steps_timed=timed.count, worked_share=timed.worked_share,
        validation=validation.encoding + validation.scoring, test=test, checkpoint=checkpoint,
        encoded_share=validation.encoded_share, scored_share=validation.scored_share, peak_memory_bytes=peak,
    )


def middles(training: TrainingSpec) -> list[tuple[float, float]]:
    """(epoch, share of the training) of every phase, or of a training without phases. epoch: the start of an epoch near
    its middle, because steps of a warm-up or with frozen parts at the beginning differ from the rest."""
    if not training.epochs:
        return [(0.0, 1.0)]
    starts = phase_starts(training.phases, training.epochs)
    ends = [*starts[1:], training.epochs]
    return [
        (max(begin, float(int((begin + end) / 2))), (end - begin) / training.epochs)
        for begin, end in zip(starts, ends, strict=True)
    ]


def _time_steps(steps: _Steps, trial: TrialSpec, *, seconds: float) -> _TimedSteps:
    places = middles(trial.training)
    opening = step = worked = 0.0
    count = 0
    for epoch, share in places:
        done = steps.run(epoch, fewest=_FEWEST, most=_MOST, seconds=seconds / len(places))
        opening += share * done.opening
        worked += share * done.worked / done.trained
        step += share * sum(done.steps) / len(done.steps)
        count += len(done.steps)
    return _TimedSteps(opening, step, count, min(1.0, worked))


def _time_checkpoint(steps: _Steps, trial: TrialSpec, folder: Path) -> float:
    """Seconds of a checkpoint with its best weights, as after a validation that is the best so far."""
    with tempfile.TemporaryDirectory(prefix="vsetune-plan-", dir=folder) as place:
        kept = CheckpointFolder(Path(place), fingerprint=trial.fingerprint(), data=steps.dataset.fingerprint)
        begin = time.perf_counter()
        kept.keep_best(steps.learner.network.state_dict(), step=1, notes=steps.learner.notes(steps.dataset))
        kept.save({"learner": steps.learner.state_dict(), "best_step": 1})
        return time.perf_counter() - begin


def _test_seconds(validation: ValidationTimes, dataset: Dataset, trial: TrialSpec) -> float:
    """Seconds to score the recalls of the best checkpoint, scaled from the validation. Other scores that `evaluation`
    asks for are not included."""
    split, own = evaluated_split(trial.data, dataset), trial.data.validation_split
    is_validated = split == own and trial.evaluation == EvaluationSpec()
    tested = [*([] if is_validated else [(dataset, split)]), *further_tests(trial.data, dataset).values()]
    seconds, validated = 0.0, dataset.split(own)
    for other, name in tested:
        scored = other.split(name)
        items = (scored.images + scored.captions) / (validated.images + validated.captions)
        pairs = (scored.images * scored.captions) / (validated.images * validated.captions)
        seconds += validation.encoding * items + validation.scoring * pairs
    return seconds


def _start_again(trial: TrialSpec, device: torch.device, reading: Reading) -> float:
    """Seconds to start a trial in a process that has run one before."""
    begin = time.perf_counter()
    steps = _Steps(trial, device, reading)
    built = time.perf_counter() - begin
    try:
        return built + steps.run(0, fewest=1, most=1, seconds=0.0).opening
    finally:
        steps.batches.close()


def measured(wanted: dict[str, Any], base: Path) -> dict[str, Any]:
    """The result of the process: CellTimes as plain data, or `problem`. base: folder of relative plugins, and of a
    temporary checkpoint."""
    try:
        use_threads(wanted["threads"])
        load_installed()
        load_plugins(wanted["plugins"], base=base)
        trial = TrialSpec.model_validate(wanted["trial"])
        return asdict(measure_cell(
            trial, device=choose_device(wanted["device"]), seconds=wanted["seconds"], folder=base,
            reading=Reading(**wanted["reading"]),
        ))
    except Exception as error:  # any error concerns this cell alone, and is reported
        return {"problem": one_line(failure_of(error).text)[:_LONGEST_PROBLEM]}


def main(file: Path) -> None:
    """Writes the result file that `processes.measure_cells` reads. file: the JSON described above."""
    mask_output()
    wanted = json.loads(file.read_text())
    write_json(file.with_name(RESULT_FILE), measured(wanted, file.parent), durable=False)


@dataclass(frozen=True)
class ValidationTimes:
    """Seconds of a validation on the whole split, or on the part of it that trials validate on. Encoding time is
    proportional to the number of items, scoring time to the number of pairs.

    encoded_share, scored_share: shares of items and of pairs that were timed, 1 for all.
    """

    encoding: float
    scoring: float
    encoded_share: float
    scored_share: float


class _Enough(Exception):
    """Raised when the time for scoring is used up."""


def time_validation(
    network: Network, dataset: Dataset, trial: TrialSpec, device: torch.device, *, seconds: float
) -> ValidationTimes:
    """Validates once, for about `seconds`: at most half of them to encode, the rest to score. A batch and a block that
    have begun are always finished. NumericError if a similarity is not finite."""
    split, chosen = dataset.split(trial.data.validation_split), trial.evaluation.validation_images
    all_images = min(chosen or split.images, split.images)
    all_captions = split.captions * all_images / split.images
    with evaluating(network):
        begin = time.perf_counter()
        encoded = encode_split(
            network, dataset, trial.data.validation_split, trial=trial, device=device, images=chosen,
            enough=lambda: time.perf_counter() - begin > seconds / 2,
        )
        wait_for(device)
        encoding = time.perf_counter() - begin
        images, captions = len(encoded.images), len(encoded.owner)
        begin = time.perf_counter()
        share = _score(network, encoded, trial, seconds=max(seconds / 2, seconds - encoding))
        wait_for(device)
        scoring = time.perf_counter() - begin
    items = (images + captions) / (all_images + all_captions)
    pairs = share * (images / all_images) * (captions / all_captions)
    return ValidationTimes(encoding / items, scoring / pairs, encoded_share=items, scored_share=pairs)


def _score(network: Network, encoded: EncodedSplit, trial: TrialSpec, *, seconds: float) -> float:
    """Scores and ranks the encoded part; returns the share of this work that was done when the time was up.

    For a network that scores pairs, ranking is left out: it takes less than a thousandth of the time of scoring.
    """
    if network.kind != "score":
        owner_scores(split_scores(network, encoded, trial=trial), encoded.owner)
        return 1.0
    return score_some(network, encoded.images, encoded.captions, cost=trial.network.pair_cost, seconds=seconds)


def score_some(
    network: Network, images: Encoded, groups: Sequence[Encoded], *, cost: CostOfPair, seconds: float
) -> float:
    """Scores pairs until the time is up, at least one block; returns the share of the arithmetic that was done.

    A group has captions of similar length; groups are sorted, the shortest first. Groups of all lengths are scored, not
    only the cheap ones at the beginning.
    """
    begin = time.perf_counter()
    works = [cost(regions=images.vectors.shape[1], words=group.vectors.shape[1]).flops for group in groups]
    whole = sum(work * len(group) for work, group in zip(works, groups, strict=True)) * len(images)
    done, in_group = 0.0, 0

    def report(pairs: int, _: int) -> None:
        nonlocal in_group
        in_group = pairs
        if time.perf_counter() - begin > seconds:
            raise _Enough

    for number in spread(len(groups)):
        group, in_group = groups[number], 0
        try:
            pair_scores(network, images, [group], torch.arange(len(group), device=group.vectors.device), cost=cost,
                        report=report)
        except _Enough:
            return (done + in_group * works[number]) / whole
        done += in_group * works[number]
    return 1.0


def spread(count: int) -> Iterator[int]:
    """0 to count - 1 in bisection order: the middle first, then the middles of both halves, and so on. The first few
    numbers are therefore spread over the whole range."""
    parts = [(0, count)]
    for low, high in parts:
        if low < high:
            middle = (low + high) // 2
            yield middle
            parts += [(low, middle), (middle + 1, high)]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
