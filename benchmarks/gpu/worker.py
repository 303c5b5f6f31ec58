"""One trial in a process of its own that shares a device with others: `python -m gpu.worker ORDER`.

ORDER is JSON: data, network and loss (settings), training (settings), device, share (of the GPU's memory), threads,
seconds. It says `ready` after its first steps, begins when it reads a line, trains so long and prints one line of JSON:
pairs, seconds, processor_s (of this process, all threads), losses of the first steps.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PACKAGES = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "platform")]
FIRST_STEPS = 6
RESIDENT = 4


def train(order: dict[str, Any]) -> None:
    """What the process does."""
    import torch

    from gpu.cases import trial_of
    from gpu.curves import learner_of
    from vsetune.data.stored.dataset import Dataset
    from vsetune.training.batches import TrainingBatches
    from vsetune.training.device import choose_device, take_share, use_threads, wait_for

    use_threads(order["threads"])
    device = choose_device(order["device"])
    take_share(device, order["share"])
    trial = trial_of(order["data"], order["network"], order["loss"], **order["training"])
    torch.manual_seed(0)
    learner, source = learner_of(trial, device), TrainingBatches(trial, Dataset.open(order["data"]), device)
    batches = [source.take(number) for number in range(min(RESIDENT, source.steps_per_epoch))]
    source.close()
    turn = itertools.cycle(batches)
    losses = [learner.step(next(turn)).loss.item() for _ in range(FIRST_STEPS)]
    print("ready", flush=True)
    sys.stdin.readline()
    begin, working, pairs = time.perf_counter(), time.process_time(), 0
    while (spent := time.perf_counter() - begin) < order["seconds"]:
        batch = next(turn)
        learner.step(batch)
        pairs += batch.pairs
        wait_for(device)
    worked = time.process_time() - working
    print(json.dumps({"pairs": pairs, "seconds": spent, "processor_s": worked, "losses": losses}), flush=True)


def together(orders: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Run these trials at the same time, each in its process, beginning together; RuntimeError when one fails."""
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {PACKAGES!r}; from gpu.worker import main; main()"]
    running = [
        subprocess.Popen([*command, json.dumps(order)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for order in orders
    ]
    try:
        for process in running:
            _line(process)
        for process in running:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        return [json.loads(_line(process)) for process in running]
    except BaseException:
        for process in running:
            process.kill()
        raise
    finally:
        for process in running:
            with process:  # closes its pipes and waits for it
                pass


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"a process that shares the device ended with code {process.wait()}; its error is above")
    return line


def main() -> None:
    train(json.loads(sys.argv[1]))


if __name__ == "__main__":
    main()
