"""How much the driver of a study grows with each trial that has ended, and how much of that is Ray Tune's own.

    PYTHONPATH=platform python benchmarks/driver_memory.py [--trials 300] [--validations 20] [--at-a-time 2] [--mlflow]

Runs a whole study whose trainings return at once, with the reports that a training sends: the environment, a point with
all its numbers per validation, the totals. Then Ray Tune alone runs the same trainable as often, in a process of its
own. Prints the memory of each process (resident, in MB) as trials end, and the growth per trial from the first fifth to
the last trial. --mlflow: the study is also exported, which takes a second per trial. A minute with 300 trials.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from ray import tune
from rich.console import Console

from vsetune.study.trainable import AttemptTrainable, as_result

NUMBERS = (
    "train_loss", "learning_rate", "load_seconds", "validation_seconds", "device_seconds", "pairs_per_second", "i2t_r1",
    "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10", "rsum", "gradient_norm", "embedding_norm", "similarity",
)
TOTALS = (
    "epochs", "steps", "pairs_seen", "validations", "train_seconds", "load_seconds", "validation_seconds",
    "checkpoint_seconds", "device_seconds", "wasted_epochs", "wasted_seconds", "seconds_per_epoch", "best_m_recall",
    "best_step", "epochs_to_best", "train_seconds_to_best", "start_seconds", "peak_memory_bytes",
)
ENVIRONMENT = {f"package_{number}": f"{number}.2.3" for number in range(12)} | {
    "git_revision": "0" * 40, "python": "3.11", "platform": "Linux" * 8, "processor": "a processor of some kind",
}


class Instant(tune.Trainable):  # type: ignore[misc]
    """Reports what a training reports, and trains nothing."""

    default_resource_request = AttemptTrainable.default_resource_request
    validations = 20

    def setup(self, config: dict[str, Any]) -> None:
        self._step = -1

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        self._step += 1
        if not self._step:
            return as_result({
                "event": "opened", "node_id": "0" * 56, "number": 1, "environment": dict(ENVIRONMENT),
                "protocol": {"images": 1000, "captions": 5000}, "inherited": [], "summary": {},
            })
        step = self._step
        point = {
            "step": 10 * step, "epoch": step / self.validations, "pairs_seen": 640 * step, "m_recall": 20 + step / 7,
            "train_seconds": step / 3, "metrics": {name: step + place / 7 for place, name in enumerate(NUMBERS)},
        }
        report = {"event": "point", "point": point, "summary": dict.fromkeys(TOTALS, step / 10)}
        ending = {"is_finished": True, "done": True, "artifacts": []}
        return as_result(report | ending if step == self.validations else report)

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """There is nothing to keep."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """There is nothing to go on from."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--validations", type=int, default=20, help="of each trial")
    parser.add_argument("--at-a-time", type=int, default=2)
    parser.add_argument("--mlflow", action="store_true")
    parser.add_argument("--alone", choices=("study", "plain"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    Instant.validations = given.validations
    if given.alone is not None:
        sizes = (study if given.alone == "study" else plain)(given)
        print(json.dumps(sizes))
        return
    growths = {}
    for kind in ("study", "plain"):
        done = subprocess.run(
            [sys.executable, __file__, *sys.argv[1:], "--alone", kind], check=True, stdout=subprocess.PIPE, text=True
        )
        sizes = json.loads(done.stdout.splitlines()[-1])
        growths[kind] = shown(kind, sizes)
    print(f"the study's own part: {growths['study'] - growths['plain']:.1f} KB per trial; "
          f"ratio {growths['study'] / growths['plain']:.2f}")


def shown(kind: str, sizes: list[float]) -> float:
    """KB per trial."""
    first, last = len(sizes) // 5, len(sizes) - 1
    growth = 1000 * (sizes[last] - sizes[first]) / (last - first)
    marks = ", ".join(f"{sizes[last * fifth // 5]:.0f}" for fifth in range(6))
    print(f"{kind:6} {len(sizes)} trials: {marks} MB; {growth:.1f} KB per trial", flush=True)
    return growth


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def study(given: argparse.Namespace) -> list[float]:
    """Memory after each trial that ended."""
    from vsetune.study import placement
    from vsetune.study.ledger import StudyLedger
    from vsetune.study.preparation import prepare_study
    from vsetune.study.run import run_study

    sizes: list[float] = []
    placement.AttemptTrainable = Instant  # type: ignore[misc]
    StudyLedger.close = noting(StudyLedger.close, sizes)  # type: ignore[method-assign]
    console = Console(stderr=True, quiet=True)
    with tempfile.TemporaryDirectory() as home:
        os.environ["VSETUNE_HOME"] = home
        path = Path(home) / "memory.yaml"
        path.write_text(yaml.safe_dump(plain_study(given)))
        outcome = run_study(
            prepare_study(path, console), resume=False, retry_failed=False, address=None, console=console
        )
    assert outcome.counts == {"finished": given.trials}, outcome
    return sizes


def plain_study(given: argparse.Namespace) -> dict[str, Any]:
    return {
        "study": "memory", "networks": [{"name": "vsepp"}], "losses": [{"name": "lseh"}],
        "data": {"path": "data/scenes", "scenes": {"train": 40, "validation": 10, "test": 4}, "test_split": None},
        "training": {"epochs": 1}, "baseline": "lseh",
        "search": {"sampler": "random", "configurations": given.trials, "at_once": given.at_a_time},
        "resources": {"cpus": 1, "concurrent_trials": given.at_a_time},
        "tracking": {"models": "none"} | ({} if given.mlflow else {"uri": "none"}),
    }


def plain(given: argparse.Namespace) -> list[float]:
    """The same trainable under Ray Tune alone, which is asked to keep nothing."""
    import ray

    from vsetune.study.cluster import loopback_only
    from vsetune.study.placement import quiet_tune

    sizes: list[float] = []

    class Noting(tune.Callback):  # type: ignore[misc]
        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            sizes.append(resident_mb())

    quiet_tune()
    with loopback_only(), tempfile.TemporaryDirectory() as folder:
        ray.init(address="local", include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        config = {
            "trial": {"name": "plain"}, "needs": {"cpus": 1, "gpus": 0.0},
            "number": tune.grid_search(list(range(given.trials))),
        }
        tune.Tuner(
            tune.with_resources(Instant, {"CPU": 1}), param_space=config,
            tune_config=tune.TuneConfig(reuse_actors=True, max_concurrent_trials=given.at_a_time),
            run_config=tune.RunConfig(storage_path=folder, verbose=0, callbacks=[Noting()]),
        ).fit()
        ray.shutdown()
    return sizes


def noting(close: Callable[..., None], sizes: list[float]) -> Callable[..., None]:
    def closed(*arguments: Any, **settings: Any) -> None:
        close(*arguments, **settings)
        sizes.append(resident_mb())

    return closed


if __name__ == "__main__":
    main()
