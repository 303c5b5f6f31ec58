"""How long a trial takes to its first step: in a worker that had the data set open, and in a fresh one.

    python benchmarks/trial_start.py [FOLDER] [ROUNDS]

FOLDER: an ingested data set; without one, scenes with features of Flickr8k's shape are made. The trial is VSE++ with
LSEH, D = 512, which reads semantic vectors. Each round starts it with and without what a process keeps and leaves out
(bank, vectors, spread; no search among the imports), in turn: warm in this
process, fresh in a process of its own, whose interpreter and Ray are not counted. Seconds by the clock and, in
brackets, of the processor, which other work on the machine moves less; one thread. About a minute; expect at most 0.3 s
warm and 3 s fresh until the first step begins.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

ROUNDS = 5
BEFORE, NOW = "before", "now"
_BANK_BYTES = 50 * 2**30


@dataclass(frozen=True)
class Start:
    """Until the first batch is there, and until the step with it is over; by the clock and of the processor."""

    ready_s: float
    own_ready_s: float
    stepped_s: float
    own_stepped_s: float


class Watch:
    """Both clocks, from when it is made."""

    def __init__(self) -> None:
        self._begin = time.perf_counter(), time.process_time()

    def seconds(self) -> tuple[float, float]:
        return time.perf_counter() - self._begin[0], time.process_time() - self._begin[1]


def main(folder: str | None, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["VSETUNE_HOME"], os.environ["OMP_NUM_THREADS"] = temporary, "1"
        from reader_throughput import wide_scenes

        data = folder or wide_scenes(Path(temporary) / "scenes")
        start(data, NOW, 0, Watch())  # makes bank and vectors
        show("warm worker", in_turn(rounds, lambda kind, number: warm(data, kind, number)))
        show("fresh worker", in_turn(rounds, lambda kind, number: fresh(data, kind, number)))


def in_turn(rounds: int, run: Callable[[str, int], Start]) -> dict[str, list[Start]]:
    """Both kinds once per round, beginning with the other one each time."""
    found: dict[str, list[Start]] = {BEFORE: [], NOW: []}
    for number in range(rounds):
        for kind in (BEFORE, NOW) if number % 2 == 0 else (NOW, BEFORE):
            found[kind].append(run(kind, number))
    return found


def warm(data: str, kind: str, number: int) -> Start:
    if kind == BEFORE:
        from vsetune.data.stored.array_cache import forget_arrays
        from vsetune.data.stored.banks import forget_banks
        from vsetune.training.batches import forget_spreads

        forget_arrays(), forget_banks(), forget_spreads()
        return start(data, kind, number, Watch())
    start(data, kind, number, Watch())  # what was forgotten is open again
    return start(data, kind, number, Watch())


def fresh(data: str, kind: str, number: int) -> Start:
    done = subprocess.run(
        [sys.executable, __file__, "--child", data, kind, str(number)], check=True, capture_output=True, text=True,
    )
    return Start(**json.loads(done.stdout.splitlines()[-1]))


def start(data: str, kind: str, number: int, watch: Watch) -> Start:
    """A trial as a worker opens it, and its first step."""
    import vsetune.study.trainable  # noqa: F401  what a worker imports
    from vsetune.config.sources.trial_inputs import STREAMED, Reading
    from vsetune.config.study.training import TrialSpec
    from vsetune.training.attempt import TrainingAttempt

    trial = TrialSpec.model_validate({
        "study": "benchmark", "trial": f"{kind}-{number}", "cell": "vsepp.lseh", "seed": number,
        "data": {"path": data}, "network": {"name": "vsepp", "embedding_size": 512}, "loss": {"name": "lseh"},
        "training": {},
    })
    reading = STREAMED if kind == BEFORE else Reading("auto", _BANK_BYTES)
    with tempfile.TemporaryDirectory() as folder:
        attempt = TrainingAttempt(trial, Path(folder) / "trial", device="cpu", threads=1, reading=reading)
        attempt.environment(), attempt.protocol()
        batch = attempt._batches.take(0)
        ready = watch.seconds()
        attempt._learner.step(batch, None)
        stepped = watch.seconds()
        attempt.close()
    return Start(*ready, *stepped)


def child(data: str, kind: str, number: int) -> None:
    import ray  # noqa: F401  a worker's process has it before it is given a trial

    watch = Watch()
    if kind == BEFORE:
        import vsetune.search.configurations  # noqa: F401
    print(json.dumps(vars(start(data, kind, number, watch))))


def show(what: str, found: dict[str, list[Start]]) -> None:
    """Medians of both kinds and of their ratio in each round."""
    for kind, starts in found.items():
        medians = [median(getattr(each, name) for each in starts) for name in Start.__dataclass_fields__]
        print(f"{what:13}{kind:7} first step begins after {medians[0]:6.2f} s ({medians[1]:.2f}), "
              f"is over after {medians[2]:6.2f} s ({medians[3]:.2f})")
    ratios = [now.own_ready_s / before.own_ready_s for before, now in zip(found[BEFORE], found[NOW], strict=True)]
    print(f"{what:13}now / before, of the processor: {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
          flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        given = dict(enumerate(sys.argv))
        main(given.get(1), int(given.get(2, ROUNDS)))
