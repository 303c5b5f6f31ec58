"""The page of a check: a Markdown table per part, and what is wrong."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from gpu.attempts import Resumed
from gpu.curves import FACTOR, Compared
from gpu.rates import Rate, Transfer
from gpu.sharing import Shared
from gpu.step_waits import StepWaits


@dataclass(frozen=True)
class Part:
    """title, a sentence or two, and a table; problems: one line each, the check has failed with any."""

    title: str
    text: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    problems: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        table = [self.header, ["---"] * len(self.header), *self.rows]
        lines = "\n".join(f"| {' | '.join(row)} |" for row in table)
        return f"### {self.title}\n\n{self.text}\n\n{lines}\n"


def whole(device: str, sizes: str, parts: Sequence[Part]) -> str:
    """All parts under the name of the machine."""
    versions = f"torch {torch.__version__}, CUDA {torch.version.cuda or 'none'}, Python {platform.python_version()}"
    return "\n".join([f"Device: {device}; {versions}; sizes: {sizes}.\n", *(part.markdown() for part in parts)])


def of_curves(found: Sequence[Compared], device: str) -> Part:
    rows = [
        [each.case, each.precision, f"{each.device:.1e}", f"{each.yardstick:.1e}", f"{each.bound:.1e}",
         "yes" if each.holds else "**no**"]
        for each in found
    ]
    problems = [
        f"{each.case} in {each.precision}: its losses are {each.device:.1e} away from those in float64, need at most "
        f"{each.bound:.1e}" for each in found if not each.holds
    ]
    text = (
        f"Largest difference of the losses from those in float64, as a share of the largest, on {device} and on the "
        f"CPU in the same precision (imitated but for float32). Bound: {FACTOR:g} times the CPU's, of this case or of "
        "the median one."
    )
    return Part("Curves", text, ("case", "precision", "device", "CPU", "bound", "holds"), rows, problems)


def of_waits(found: Mapping[str, StepWaits]) -> Part:
    rows = [[name, str(waits.total), waits.calls, waits.worst()] for name, waits in found.items()]
    text = "How often one step makes the host wait for the device, and the lines of ours that do it most."
    return Part("Waits", text, ("case", "waits", "calls that wait", "where"), rows)


def of_resumed(found: Mapping[str, Resumed]) -> Part:
    rows = [
        [name, f"{each.continued:.1e}", f"{each.repeated:.1e}", "yes" if each.holds else "**no**"]
        for name, each in found.items()
    ]
    problems = [
        f"{name}: continued, it differs by {each.continued:.1e}, two straight trainings by {each.repeated:.1e}"
        for name, each in found.items() if not each.holds
    ]
    text = "Losses and M-Recalls of a training stopped half way and continued, against one never stopped; beside it " \
        "how far two straight ones are apart."
    return Part("Resume", text, ("network", "continued", "repeated", "holds"), rows, problems)


def of_memory(told: Mapping[str, Any]) -> Part:
    is_well = told["kind"] == "memory" and told["survived"]
    row = [str(told["kind"]), str(told["text"])[:160], "yes" if told["survived"] else "**no**"]
    problems = [] if is_well else [f"out of memory: told as {told['kind']} ({told['text']}), need memory, and to go on"]
    text = "A step that needs more memory than there is, then a small training in the same process."
    return Part("Out of memory", text, ("told as", "text", "the process went on"), [row], problems)


def of_halves(alone: Shared, halves: Shared) -> Part:
    rows = [
        [str(each.trials), f"{each.pairs_s:,.0f}", f"{each.pairs_s / alone.pairs_s:.2f}", f"{each.slowest:,.0f}"]
        for each in (alone, halves)
    ]
    apart = max(
        abs(one - other) / abs(other)
        for losses in halves.losses for one, other in zip(losses, alone.losses[0], strict=True)
    )
    problems = [] if apart <= LARGEST_APART else [f"two trials at once: losses differ by {apart:.1e} from one alone"]
    text = f"VSE++, batches on the device. First losses of the two differ by at most {apart:.1e} from those alone."
    header = ("trials", "pairs/s together", "against one", "slowest")
    return Part("Two trials on half a device each", text, header, rows, problems)


LARGEST_APART = 1e-3
"""Of losses of equal trainings: a GPU sums in another order when it is shared."""


def of_rates(found: Sequence[Rate], peaks: Mapping[str, float], moved: Transfer) -> Part:
    reached = ", ".join(f"{name} {rate / 1e12:,.2f}" for name, rate in peaks.items())
    rows = [
        [each.network, each.precision, str(each.batch), f"{1000 * each.step_s:,.1f}", f"{each.pairs_s:,.0f}",
         f"{each.waiting:.0%}", f"{each.products:.0%}", f"{each.operations / 1e9:,.1f}", f"{each.peak_share:.0%}",
         "-" if each.memory is None else f"{each.memory / 1e9:.2f}"]
        for each in found
    ]
    text = (
        "A training step with LMH and Adam, batches on the device. Waiting: share of the time lost to data when each "
        "is made for its step, from arrays on the device. Products: share of the step that its products take alone. "
        f"One large product reaches, in TFLOP/s: {reached}. A batch of {moved.megabytes:.1f} MB leaves the host in "
        f"{1000 * moved.host_s:.2f} ms and is there after {1000 * moved.there_s:.2f} ms."
    )
    header = (
        "network", "precision", "B", "step, ms", "pairs/s", "waiting", "products", "GFLOP", "of the peak", "memory, GB",
    )
    return Part("Rates", text, header, rows)
