"""One attempt: trains a trial, validates it, and continues where an earlier execution stopped."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from vsetune.config.sources.trial_inputs import STREAMED, Reading
from vsetune.config.study.training import TrialSpec
from vsetune.data.freed_memory import give_back_freed_memory, keep_freed_memory
from vsetune.data.stored.dataset import Dataset, evaluated_split, further_tests
from vsetune.errors import AttemptError, Preempted, StorageError
from vsetune.home.whole_files import make_folder
from vsetune.records.events import ValidationPoint
from vsetune.training.attempt_progress import Progress, device_seconds, summarise
from vsetune.training.batches import TrainingBatches
from vsetune.training.checkpoint import CheckpointFolder, CheckpointPace
from vsetune.training.device import choose_device, use_threads
from vsetune.training.environment import describe_environment, describe_protocol
from vsetune.training.evaluation import evaluate, recalls, score_split
from vsetune.training.executions import ExecutionLog
from vsetune.training.failures import out_of_memory, scoring
from vsetune.training.loop import TrainingLoop
from vsetune.training.processes import ALONE, Processes, Ranking
from vsetune.training.random_state import RandomState
from vsetune.training.restoring import learner_state, restore, window_state
from vsetune.training.schedule import next_validation, total_steps
from vsetune.training.start import describe_start
from vsetune.training.step import Learner
from vsetune.training.trained import KeptStage, open_first_stage

_log = logging.getLogger(__name__)


class TrainingAttempt:
    """One execution of a trial in `folder`, which belongs to this trial and to one process at a time.

    A folder with a checkpoint of the same trial is continued from it: parameters, optimizer, state of the loss,
    schedule, place in the epoch, random numbers, history and seconds. On the CPU the continued trial gives the same
    numbers, bit for bit, as an uninterrupted one; steps after the checkpoint are repeated, with their validations.

    device: `auto`, `cpu`, `cuda`, `cuda:N`. threads: of one operation on the CPU; None keeps the process's setting.
    processes: those that train the trial; this one is the first, the others are in `help_training`.
    first_stage: files of the trial named by `evaluation.rerank`; None: it names none. reading: source of the batches,
    which does not change them. checkpoint_share: of the trial's time that checkpoints may take; 1: one with every
    validation. ConfigError, DataError, StorageError: trial, data set and folder do not fit each other or this machine.
    DamagedCheckpoint: the files in the folder differ from what was saved; `CheckpointFolder.set_aside` moves them away.
    """

    def __init__(
        self, trial: TrialSpec, folder: Path, *, device: str, threads: int | None,
        first_stage: KeptStage | None = None, reading: Reading = STREAMED, checkpoint_share: float = 1.0,
        recorded: int = 0, processes: Processes = ALONE,
    ) -> None:
        use_threads(threads)
        keep_freed_memory()
        make_folder(folder)
        self.trial = trial
        self.device = choose_device(device)
        self.dataset = Dataset.open(trial.data.path, reading=reading)
        self._tests = further_tests(trial.data, self.dataset)
        self._check_files()
        self._first = open_first_stage(trial, first_stage, self.dataset, self.device)
        self._batches = TrainingBatches(trial, self.dataset, self.device)
        self._random = RandomState(trial.seed, self.device)
        self._progress = Progress()
        self._checkpoints = CheckpointFolder(
            folder, fingerprint=trial.fingerprint(), data=self.dataset.fingerprint
        )
        saved = self._checkpoints.load()
        with self._random.active():
            learner = Learner.build(
                trial, self.dataset, self.device, saved=learner_state(saved, self._checkpoints), processes=processes
            )
        if saved is not None:
            learner, self._progress = restore(saved, learner, self._random, self._checkpoints)
        self._started = (saved or {}).get("started") or describe_start(trial.network, self.dataset.vocabulary.words)
        self.inherited = len(self._progress.history)
        """Validations restored from an earlier execution."""
        self._executions = ExecutionLog(folder)
        self._execution = self._executions.begin(
            kept_pairs=self._progress.pairs_seen, kept_seconds=self._progress.seconds, recorded=recorded
        )
        self._loop = TrainingLoop(trial, learner, self._batches, self._progress, where=self._where)
        window = None if saved is None else window_state(saved, self._checkpoints)
        if window is not None:
            self._loop.window.load_state_dict(window)
        self._processes = processes
        if processes.count > 1:
            processes.from_first(self._state() | {"window": None})  # to `help_training`; "window": between validations
        self._pace, self._is_kept = CheckpointPace(checkpoint_share), True
        self._leave = threading.Event()
        self.pulse = 0
        """Increases with every step and batch while the attempt works; may be read from another thread."""
        _log.info("%s: %d parameters on %s", self._where, self.parameters, self.device)

    @property
    def number(self) -> int:
        """1 for the first execution of the trial, 2 for the second, ..."""
        return self._execution.number

    @property
    def worked_seconds(self) -> float:
        """Processor seconds of training steps in this execution; see `working_clock`."""
        return self._loop.worked_seconds

    @property
    def history(self) -> list[ValidationPoint]:
        """All validations of the trial, the restored ones first."""
        return list(self._progress.history)

    @property
    def best_path(self) -> Path:
        """Weights of the best validation, safetensors; there after the first validation."""
        return self._checkpoints.best_path

    @property
    def parameters(self) -> int:
        """Number of trainable parameters of the network."""
        return sum(p.numel() for p in self._learner.network.parameters() if p.requires_grad)

    @property
    def step(self) -> int:
        """Training steps done, earlier executions included."""
        return self._progress.step

    @property
    def is_finished(self) -> bool:
        """The trial has been trained to its budget and validated there."""
        steps = total_steps(self.trial.training, self._batches.steps_per_epoch)
        return bool(self._progress.history) and self._progress.step >= steps

    def leave(self) -> None:
        """Ask `advance`, running in another thread, to stop after its step. A request before `advance` starts counts
        too."""
        self._leave.set()

    def advance(self) -> ValidationPoint:
        """Train up to the next validation and validate; write the weights if they are the best so far, and the
        checkpoint if one is due or the trial is finished.

        Preempted: `leave` was called; the checkpoint is that of the last step, and nothing is lost. NumericError: a
        loss, gradient norm or similarity is not finite; the checkpoint on disk stays as it was. StorageError: the
        checkpoint cannot be written. AttemptError: no GPU memory left, or finished already. After an error this object
        is unusable; a new one continues from the checkpoint.
        """
        if self.is_finished:
            raise AttemptError(
                "VSE-T001", "{where}: already trained to its {epochs:g} epochs.", where=self._where,
                epochs=self.trial.training.epochs,
            )
        try:
            with self._random.active():
                self._train()
                point = self._validate()
        except Preempted:
            self._save_between()
            self._give_up()
            raise
        except torch.OutOfMemoryError as error:
            self._give_up()
            raise out_of_memory(error, where=self._where, step=self._progress.step) from error
        except BaseException:
            self._give_up()
            raise
        try:
            self._save(point)
        except BaseException:
            self._is_kept = True  # do not let `keep` overwrite: another process may own the folder
            raise
        self._loop.begin_window()
        return point

    def keep(self) -> None:
        """Write the checkpoint of the last validation. Does nothing if it is on disk, if an error has made this object
        unusable, or if the previous checkpoint was removed, because then the trial is not continued.

        Not to be called while `advance` runs. StorageError when it cannot be written.
        """
        if not self._is_kept and self._checkpoints.path.exists():
            self._write(self._state())

    def summary(self) -> dict[str, float]:
        """Totals of the trial so far."""
        return summarise(self._progress, self._execution, pairs=self._batches.pairs)

    def finish(self) -> dict[str, float]:
        """Summary of the trial so far; for a finished trial also the scores of its best weights, which its network then
        has.

        `test_*`: on the test split; `test.NAME.*`: recalls on one of `data.tests`. Without a test split, and only when
        `evaluation` asks for more than recalls, `best_*`: on the validation split. A trial stopped before its budget is
        not scored: the scheduler may continue it later.
        """
        summary = self.summary()
        if self.is_finished:
            summary |= self._best_scores()
        self.close()
        return summary

    def close(self) -> None:
        """Stop reading ahead. The attempt can still be advanced."""
        self._batches.close()
        give_back_freed_memory()

    def environment(self) -> dict[str, str]:
        """For `AttemptStart.environment`."""
        described = describe_environment(
            self.trial.training, device=self.device, data_fingerprint=self.dataset.fingerprint
        )
        return described | self._batches.describe() | self._started

    def protocol(self) -> Mapping[str, Any]:
        """For `AttemptStart.protocol`: what is ranked, and how often. Curves under different protocols are not
        comparable."""
        return describe_protocol(self.trial, self.dataset, self._batches)

    @property
    def _where(self) -> str:
        return f"study {self.trial.study} trial {self.trial.trial} attempt {self._execution.number}"

    def _check_files(self) -> None:
        """Report missing shards now, those of the test split too, and not after hours of training."""
        data = self.trial.data
        used = [data.train_split, data.validation_split]
        if data.test_split is not None and data.test_split in self.dataset.manifest.splits:
            used.append(data.test_split)
        self.dataset.check_files(dict.fromkeys(used))
        for dataset, split in self._tests.values():
            dataset.check_files([split])

    def _train(self) -> None:
        progress, per_epoch = self._progress, self._batches.steps_per_epoch
        end = next_validation(self.trial.training, step=progress.step, steps_per_epoch=per_epoch)
        while progress.step < end:
            if self._leave.is_set():
                raise Preempted(
                    "VSE-T002", "{where} step {step}: its process will be ended; another one continues the trial.",
                    where=self._where, step=progress.step,
                )
            self._processes.task("step")
            self._step()
            self._mark()
        self._loop.settle()

    def _step(self) -> None:
        if self._loop.begin():
            _log.info("%s: phase %d begins at epoch %.3f", self._where, self._learner.phase, self._loop.epoch)
        self._loop.step()

    @property
    def _learner(self) -> Learner:
        return self._loop.learner

    def _validate(self) -> ValidationPoint:
        progress, window, split = self._progress, self._loop.window, self.trial.data.validation_split
        begin, images = time.perf_counter(), self.trial.evaluation.validation_images
        self._processes.task(Ranking(split, images))
        with scoring(split, where=self._where, step=progress.step, on_progress=self._mark) as report:
            scores = score_split(
                self._learner.network, self.dataset, split, trial=self.trial, device=self.device, report=report,
                on_batch=self._mark, images=images, first=self._first, processes=self._processes,
            )
        progress.validation_seconds += time.perf_counter() - begin
        metrics = recalls(scores) | window.means() | {
            "learning_rate": self._learner.optimizers.learning_rate,
            "train_seconds": progress.train_seconds,
            "load_seconds": progress.load_seconds,
            "validation_seconds": progress.validation_seconds,
            "device_seconds": device_seconds(progress, self._execution),
            "pairs_per_second": window.pairs_per_second(progress.train_seconds + progress.load_seconds),
        }
        return ValidationPoint(
            step=progress.step, epoch=self._loop.epoch, pairs_seen=progress.pairs_seen,
            m_recall=metrics.pop("m_recall"), train_seconds=progress.train_seconds, metrics=metrics,
        )

    def _best_scores(self) -> dict[str, float]:
        """All scores of the best weights, which replace the last ones: the device holds only one set."""
        split, wanted = evaluated_split(self.trial.data, self.dataset), self.trial.evaluation
        is_test, found = split == self.trial.data.test_split, dict[str, float]()
        if is_test or wanted.asks_for_more:
            prefix, images = ("test", None) if is_test else ("best", wanted.validation_images)
            found |= self._score(evaluate, self.dataset, split, prefix=f"{prefix}_", images=images)
        for name, (dataset, its_split) in self._tests.items():
            found |= self._score(_recalls_of, dataset, its_split, prefix=f"test.{name}.", test=name)
        return found

    def _score(
        self, scores_of: Callable[..., dict[str, float]], dataset: Dataset, split: str, *, prefix: str,
        images: int | None = None, test: str | None = None,
    ) -> dict[str, float]:
        """Of the best weights. scores_of: `evaluate`, or its recalls alone. prefix: of the names. images: of the split;
        None: all. test: name of a further test set."""
        begin = time.perf_counter()
        network, best = self._learner.network, self._checkpoints.load_best()
        network.load_state_dict(best)
        self._processes.task(Ranking(split, images, best, test))
        del best  # the network has them now
        watched = scoring(split, where=self._where, step=self._progress.step, on_progress=self._mark)
        with self._random.active(), watched as report:
            scores = scores_of(
                network, dataset, split, trial=self.trial, device=self.device, report=report, on_batch=self._mark,
                images=images, first=self._first, processes=self._processes,
            )
        scores |= {"seconds": time.perf_counter() - begin}
        return {f"{prefix}{name}": value for name, value in scores.items()}

    def _save(self, point: ValidationPoint) -> None:
        begin = time.perf_counter()
        is_best = self._progress.record(point)
        if is_best:
            self._checkpoints.keep_best(
                self._learner.network.state_dict(), step=point.step, notes=self._learner.notes(self.dataset)
            )
        self._is_kept = False
        if self.is_finished or self._pace.is_due():
            with self._pace.writing():
                self._write(self._state())
        self._progress.checkpoint_seconds += time.perf_counter() - begin
        self._mark(now=not self._is_kept)  # without a checkpoint, a crash from here on counts this progress as lost
        _log.info(
            "%s: step %d epoch %.3f M-Recall %.2f%s", self._where, point.step, point.epoch, point.m_recall,
            " (best)" if is_best else "",
        )

    def _save_between(self) -> None:
        """A checkpoint between two validations, with the numbers collected since the last one."""
        self._write(self._state() | {"window": self._loop.window.state_dict()})

    def _state(self) -> dict[str, Any]:
        return {
            "learner": self._learner.state_dict(),
            "random": self._random.state_dict(),
            "progress": self._progress.state_dict(),
            "best_step": self._progress.best_step,
            "started": self._started,
        }

    def _write(self, state: Mapping[str, Any]) -> None:
        self._checkpoints.save(state)
        self._is_kept = True

    def _give_up(self) -> None:
        """Record the progress after an error. The parameters no longer belong to a validation, so no checkpoint is
        written."""
        self._is_kept = True
        self._mark(now=True)
        self.close()

    def _mark(self, *, now: bool = False) -> None:
        """Record that the attempt is alive, and its progress. A full disk must not stop a training that can
        continue."""
        self.pulse += 1
        with contextlib.suppress(StorageError):
            self._executions.mark(pairs=self._progress.pairs_seen, seconds=self._progress.seconds, now=now)


def _recalls_of(*args: Any, **more: Any) -> dict[str, float]:
    return recalls(score_split(*args, **more))
