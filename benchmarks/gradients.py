"""What the gradients written out by hand save, against automatic differentiation of the same formulas (decision 0034).

    python benchmarks/gradients.py [--repeats 5] [--threads 1] [--batch 128] [--only SCAN,GSMN] [--skip-memory]

Whole training steps as in network_steps.py: encode, scores, LMH, losses of the network's own, backward, no Adam;
36 regions of 2,048 numbers, networks at their published sizes. Of each row one hand-derived gradient is switched off,
all others stay on; both steps are taken in turns after their gradients have been found equal, and the least processor
time of each counts, so that other work on the machine does not. Memory is the most that a process of its own holds
through such a step with Adam, with all hand-derived gradients on and with all off.
A hand-derived gradient stays where the ratio of times is at least 1.15 in a network that uses it, or where a step
would not fit without it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
from network_steps import EQUAL, Run, begin, new_network, training_step
from rich.console import Console
from rich.table import Table

from vsetune.networks.network_base import Network
from vsetune.networks.parts import recurrence
from vsetune.networks.parts.cpu import pairs
from vsetune.networks.parts.network_devices import PLAIN_AUTOGRAD

GRU, PAIRS = "GRU", "few pairs"
MODULES: dict[str, ModuleType] = {GRU: recurrence, PAIRS: pairs}
"""Where each asks whether to use its own gradient."""

STEPS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "VSE++": ("vsepp", {}, (GRU,)),
    "VSE-infinity": ("vse_infinity", {}, (GRU,)),
    "PVSE": ("pvse", {}, (GRU,)),
    "PCME": ("pcme", {}, (GRU,)),
    "CGMN": ("cgmn", {}, (GRU,)),
    "VSRN": ("vsrn", {}, (GRU,)),
    "SCAN": ("scan", {}, (GRU, PAIRS)),
    "SGRAF-SAF": ("sgraf_saf", {"dropout": 0.0}, (GRU,)),
    "SGRAF-SGR": ("sgraf_sgr", {"dropout": 0.0}, (GRU, PAIRS)),
    "GSMN": ("gsmn", {}, (GRU, PAIRS)),
}
"""Label: network, settings, the hand-derived gradients that are measured in it."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--repeats", type=int, default=5)
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--batch", type=int, default=128)
    arguments.add_argument("--only", default=",".join(STEPS), help="rows to measure, by comma")
    arguments.add_argument("--skip-memory", action="store_true")
    given = arguments.parse_args()
    torch.set_num_threads(given.threads)
    table = Table("network", "gradient", "by hand, s", "plain, s", "ratio", "difference", "by hand, GB", "plain, GB",
                  title=f"training step, B = {given.batch}, {given.threads} threads, processor time")
    for label in given.only.split(","):
        name, settings, gradients = STEPS[label]
        for number, gradient in enumerate(gradients):
            begin(f"{gradient} in a step of {label}")
            network = new_network(name, **settings)
            step = training_step(network, given.batch)
            difference = largest_difference(network, step, MODULES[gradient])
            by_hand, plain = least_times(step, MODULES[gradient], given.repeats)
            memory = ("", "") if given.skip_memory or number else (
                peak(name, given.batch, plain=False), peak(name, given.batch, plain=True)
            )
            table.add_row(label, gradient, f"{by_hand:.2f}", f"{plain:.2f}", f"{plain / by_hand:.2f}",
                          f"{difference:.0e}", *memory)
    Console(width=120).print(table)


def largest_difference(network: Network, step: Run, module: ModuleType) -> float:
    """Of the gradients of the two steps, as a share of the largest gradient."""
    found = [gradients_after(network, step)]
    with switched_off(module):
        found.append(gradients_after(network, step))
    most = max(float(gradient.abs().max()) for gradient in found[0])
    difference = max(float((one - other).abs().max()) for one, other in zip(*found, strict=True)) / most
    if not difference <= EQUAL:
        sys.exit(f"{module.__name__}: by hand and plain differ by {difference:.1e}, need {EQUAL:.0e}")
    return difference


def gradients_after(network: Network, step: Run) -> list[torch.Tensor]:
    torch.manual_seed(0)
    step()
    return [parameter.grad.clone() for parameter in network.parameters() if parameter.grad is not None]


def switched_off(module: ModuleType) -> Any:
    return patch.object(module, "hand_derived", lambda inputs: False)


def least_times(step: Run, module: ModuleType, repeats: int) -> tuple[float, float]:
    """Seconds of processor time, by hand and plain, in turns."""
    by_hand, plain = [], []
    for _ in range(repeats):
        by_hand.append(processor_time(step))
        with switched_off(module):
            plain.append(processor_time(step))
    return min(by_hand), min(plain)


def processor_time(step: Run) -> float:
    start = time.process_time()
    step()
    return time.process_time() - start


def peak(name: str, batch: int, *, plain: bool) -> str:
    """Most GB that a process of its own holds through a step; - where it did not finish."""
    program = Path(__file__).with_name("network_steps.py")
    done = subprocess.run(
        [sys.executable, str(program), "--threads", "1", "--peak-of", name, str(batch)],
        env=os.environ | {PLAIN_AUTOGRAD: str(int(plain))}, capture_output=True, text=True, check=False,
    )
    return f"{float(done.stdout.split()[0]):.1f}" if done.returncode == 0 else "-"


if __name__ == "__main__":
    main()
