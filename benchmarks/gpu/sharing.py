"""Several trials at once on one device: pairs per second of all together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpu.worker import together


@dataclass(frozen=True)
class Shared:
    """trials: processes that trained at the same time, each with so many threads. pairs_s: of all together. slowest:
    the rate of the slowest of them. per_processor_s: pairs per second that a processor worked, which other work on the
    machine hardly moves. losses: of each one's first steps."""

    trials: int
    threads: int
    pairs_s: float
    slowest: float
    per_processor_s: float
    losses: list[list[float]]


def measured(
    network: dict[str, Any], data: str, device: str, *, trials: int, threads: int, training: dict[str, Any],
    seconds: float,
) -> Shared:
    """Trials of this network with LMH, all alike, on equal shares of the device."""
    order = {
        "data": data, "network": network, "loss": {"name": "lmh"}, "training": training, "device": device,
        "share": 1 / trials, "threads": threads, "seconds": seconds,
    }
    found = together([order] * trials)
    rates = [each["pairs"] / each["seconds"] for each in found]
    efficiency = sum(each["pairs"] for each in found) / sum(each["processor_s"] for each in found)
    return Shared(trials, threads, sum(rates), min(rates), efficiency, [each["losses"] for each in found])
