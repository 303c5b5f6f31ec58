"""What orchestration costs: trials of about ten seconds on two cores, and the same trainings by Ray Tune alone.

    PYTHONPATH=platform python benchmarks/orchestration.py [--trials 24] [--seconds 10] [--rounds 1]

Everything is on the clock: starting Ray and its actors, searching, recording in MLflow, pictures, checkpoints, the
leaderboard. Training time is what the trials report as time in training steps and validation, loading included; start
time is what a worker took from being given a trial to its first step. `plain` is a `tune.Tuner` over a class that
trains the very same trials, with the checkpoints that a training writes and two warm actors, and records nothing: no
search, no store, no loggers, no leaderboard. A round is ours and then plain, each with a Ray of its own; the ratio is
of their wall times, the median over rounds. Each round prints where the time of ours went, phase by phase. How many
epochs take `--seconds` is measured before, with trials of warm workers. Six minutes with one round on two idle cores;
expect an efficiency of at least 0.90 and a ratio of at most 1.02. Other work on these cores lengthens what is
not training more than the training.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from rich.console import Console

CELLS = CORES = 2
LONG_EPOCHS = 10.0
"""Of the trials that tell how long an epoch takes."""


class Ended(NamedTuple):
    """Of a trial. resolved: what was trained, as plain data."""

    summary: Mapping[str, float]
    resolved: Mapping[str, Any]

    @property
    def training(self) -> float:
        return sum(self.summary[name] for name in ("train_seconds", "load_seconds", "validation_seconds"))


class Round(NamedTuple):
    """Wall times in seconds, and our trials."""

    ours: float
    plain: float
    trials: Sequence[Ended]
    phases: Mapping[str, float]

    @property
    def efficiency(self) -> float:
        return sum(each.training for each in self.trials) / (CORES * self.ours)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each trial")
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        os.environ["VSETUNE_HOME"] = folder
        epochs = calibrate(home, arguments.seconds, console)
        rounds = []
        for number in range(arguments.rounds):
            rounds.append(one_round(home, f"orchestration-{number}", epochs, arguments.trials // CELLS, console))
            shown(rounds[-1])
    ratio = statistics.median(each.ours / each.plain for each in rounds)
    efficiency = statistics.median(each.efficiency for each in rounds)
    print(f"efficiency, training time / ({CORES} x wall time): {efficiency:.3f}")
    print(f"wall time against Ray Tune alone: {ratio:.3f}")


def one_round(home: Path, name: str, epochs: float, configurations: int, console: Console) -> Round:
    path = write_study(home, name, epochs, configurations)
    moments = Moments()
    with moments.noted():
        trials = run(path, console)
    ours = moments.end - moments.begin
    begin = time.perf_counter()
    train_plainly([each.resolved for each in trials], home / "plain" / name)
    return Round(ours, time.perf_counter() - begin, trials, moments.phases())


class Moments:
    """When what happened while a study ran, on the clock of this process."""

    def __init__(self) -> None:
        self.begin = self.end = 0.0
        self._calls: dict[str, list[tuple[float, float]]] = {}

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Inside, starts and ends of Ray and of trials are noted."""
        import ray

        from vsetune.study.ledger import StudyLedger

        places = [(ray, "init"), (ray, "shutdown"), (StudyLedger, "open_attempt"), (StudyLedger, "close")]
        before = [getattr(place, name) for place, name in places]
        self.begin = time.perf_counter()
        for (place, name), function in zip(places, before, strict=True):
            setattr(place, name, self._noting(name, function))
        try:
            yield
        finally:
            self.end = time.perf_counter()
            for (place, name), function in zip(places, before, strict=True):
                setattr(place, name, function)

    def phases(self) -> dict[str, float]:
        """Seconds by the clock, from the first phase to the last; together the whole run."""
        opened, closed = ([at for at, _ in self._calls[name]] for name in ("open_attempt", "close"))
        (init, ready), (bye, gone) = self._calls["init"][0], self._calls["shutdown"][-1]
        moments = {
            "preparation": init, "Ray's start": ready, "until the first trial is open": opened[0],
            "until all cores have one": opened[CORES - 1], "until a core has no more trials": closed[-CORES],
            "the last trial alone": closed[-1], "until Ray's end": bye, "Ray's end": gone, "board and page": self.end,
        }
        spans = pairwise([self.begin, *moments.values()])
        return {name: after - before for name, (before, after) in zip(moments, spans, strict=True)}

    def _noting(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any, **settings: Any) -> Any:
            begin = time.perf_counter()
            try:
                return function(*arguments, **settings)
            finally:
                self._calls.setdefault(name, []).append((begin, time.perf_counter()))

        return noted


def shown(one: Round) -> None:
    count, training = len(one.trials), sum(each.training for each in one.trials)
    parts = {
        name: sum(each.summary.get(f"{name}_seconds", 0.0) for each in one.trials) for name in ("start", "checkpoint")
    }
    rest = CORES * one.ours - training - sum(parts.values())
    print(f"{count} trials, {training / count:.1f} s each; wall time {one.ours:.1f} s on {CORES} cores, by Ray Tune "
          f"alone {one.plain:.1f} s")
    print(f"seconds of {CORES} cores: training {training:.1f}, starts of trials {parts['start']:.1f}, checkpoints "
          f"{parts['checkpoint']:.1f}, all else {rest:.1f}")
    print("by the clock: " + ", ".join(f"{name} {seconds:.1f}" for name, seconds in one.phases.items()), flush=True)


def calibrate(home: Path, seconds: float, console: Console) -> float:
    """Epochs that take `seconds` with one thread while the other core is busy with the same. Counted are trials of warm
    workers, as nearly all of a round are."""
    trials = run(write_study(home, "calibration", LONG_EPOCHS, 2), console)
    warm = trials[CORES:]
    per_epoch = sum(each.training for each in warm) / sum(each.summary["epochs"] for each in warm)
    return max(0.5, round(seconds / per_epoch, 1))


def write_study(home: Path, name: str, epochs: float, configurations: int) -> Path:
    path = home / f"{name}.yaml"
    path.write_text(yaml.safe_dump({
        "study": name,
        "data": {"path": "data/scenes", "scenes": {"train": 400, "validation": 100, "test": 4}, "test_split": None},
        "networks": [{"name": "vsepp", "fixed": {"embedding_size": 256, "word_size": 100}}],
        "losses": [{"name": "lmh"}, {"name": "lseh"}],
        "training": {"epochs": epochs, "batch_size": 64, "learning_rate": 1e-3},
        "search": {"configurations": configurations}, "scheduler": {"kind": "none"},
    }))
    return path


def run(path: Path, console: Console) -> list[Ended]:
    from vsetune.records.studies import Studies
    from vsetune.study.preparation import prepare_study
    from vsetune.study.run import run_study

    prepared = prepare_study(path, console)
    outcome = run_study(prepared, resume=False, retry_failed=False, address=None, console=console)
    assert not outcome.undelivered
    attempts = Studies().attempts(prepared.spec.study)  # in the order of their starts
    assert all(each.status == "finished" for each in attempts)
    return [Ended(dict(each.summary), dict(each.start.resolved)) for each in attempts]


def train_plainly(trials: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """The same trainings by Ray Tune, which is asked to keep nothing. Ray is started and stopped."""
    import ray
    from ray import tune

    from vsetune.study.cluster import loopback_only
    from vsetune.study.placement import quiet_tune

    quiet_tune()
    with loopback_only():
        ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        tuner = tune.Tuner(
            tune.with_resources(plain_class(), {"CPU": 1}),
            param_space={"trial": tune.grid_search(list(trials)), "folder": str(folder)},
            tune_config=tune.TuneConfig(reuse_actors=True, max_concurrent_trials=CORES),
            run_config=tune.RunConfig(storage_path=str(folder / "tune"), verbose=0),
        )
        assert not tuner.fit().errors
    finally:
        ray.shutdown()


def plain_class() -> type:
    """A Trainable that knows nothing of a driver."""
    from ray import tune

    from vsetune.config.study.training import TrialSpec
    from vsetune.training.attempt import TrainingAttempt

    class PlainTraining(tune.Trainable):  # type: ignore[misc]
        def setup(self, config: dict[str, Any]) -> None:
            trial = TrialSpec.model_validate(config["trial"])
            self.attempt = TrainingAttempt(trial, Path(config["folder"]) / trial.trial, device="cpu", threads=1)

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self.setup(new_config)
            return True

        def step(self) -> dict[str, Any]:
            point = self.attempt.advance()
            if self.attempt.is_finished:
                self.attempt.finish()
            return {"m_recall": point.m_recall, "done": self.attempt.is_finished}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            """The training writes its own."""

        def load_checkpoint(self, checkpoint: Any) -> None:
            """The training finds its own."""

    return PlainTraining


if __name__ == "__main__":
    main()
