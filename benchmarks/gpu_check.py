"""Does everything train on this machine's GPU as it does on the CPU, and how fast? One run, one page.

    PYTHONPATH=platform python benchmarks/gpu_check.py [--device cuda] [--sizes full|small] [--only curves,waits,...]
                                                          [--processes 8]

Needs no Ray, MLflow or Optuna, and no installed vsetune: Python 3.11, torch and a GPU, and beside torch these packages
(pure Python, or wheels of a few MB; `docs/gpu.md` says how they travel): numpy, pydantic, pyyaml, webdataset, pillow,
rich, safetensors, scipy. `--device cpu` goes through all of it without a GPU: curves and waits are then those of a
stand-in that computes on the CPU what a GPU would be given.

  curves   losses of a short training of every network and every loss, on the device and on the CPU, against float64;
           the bounds are measured in the same run (`gpu/curves.py`). On a GPU also in TF32 and bfloat16
  waits    how often a step makes the host wait for the device, and where (`gpu/step_waits.py`)
  resume   a training that was stopped and continued, against one that was not
  memory   a step that does not fit is told as what it is, and the process goes on
  share    two trials at once on half a device each, against one alone
  rates    per network as published: seconds and pairs per second of a step, waiting for data, share of the peak, memory

Exit code 1 when a curve leaves its bound, a resumed one differs, or the lack of memory is not survived.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from gpu import attempts, curves, page, rates, sharing, step_waits, timing
from gpu.cases import Case, every_case, published_network, small_network
from gpu.made_data import Made, make_data
from gpu.side_by_side import side_by_side
from gpu.waits import stand_in_device
from vsetune.config.component_specs import NETWORKS
from vsetune.training.device import choose_device

PARTS = ("curves", "waits", "resume", "memory", "share", "rates")
FULL, SMALL = Made(images=1200, evaluated=20, regions=36, width=2048, rare=8000), Made(images=60, evaluated=20)
BATCH = {"full": 128, "small": 16}
REPEATS = {"full": 30, "small": 3}
SHARED_S = {"full": 10.0, "small": 2.0}
"""Seconds that trials share a device."""


@dataclass(frozen=True)
class Asked:
    """What to check. data: small, for curves; large: for rates."""

    device: torch.device
    sizes: str
    cases: dict[str, Case]
    data: str
    large: str
    processes: int = 1

    @property
    def is_gpu(self) -> bool:
        return self.device.type == "cuda"

    @property
    def compared(self) -> torch.device:
        """Whose curves are held against the CPU's."""
        return self.device if self.is_gpu else stand_in_device()

    @property
    def precisions(self) -> tuple[str, ...]:
        return ("float32", "tf32", "bfloat16") if self.is_gpu else ("float32",)

    def network(self, name: str) -> dict[str, object]:
        """As published, or small."""
        return published_network(name) if self.sizes == "full" else small_network(name)


def main() -> None:
    given = parsed()
    device = choose_device(given.device)
    wanted = given.only.split(",")
    if unknown := set(wanted) - set(PARTS):
        sys.exit(f"--only: no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    named = given.cases.split(",")
    cases = {name: case for name, case in every_case().items() if any(part in name for part in named)}
    if not cases:
        sys.exit(f"--cases: none has {given.cases!r} in its name, such as vsepp.lmh")
    with tempfile.TemporaryDirectory() as folder:
        places = {name: Path(folder) / name for name in ("small", "large")}
        for place in places.values():
            place.mkdir()
        made = FULL if given.sizes == "full" and "rates" in wanted else SMALL
        asked = Asked(
            device, given.sizes, cases, make_data(places["small"], SMALL), make_data(places["large"], made),
            given.processes,
        )
        parts = [CHECKS[name](asked) for name in PARTS if name in wanted]
    print(page.whole(timing.device_title(device), given.sizes, parts))
    if problems := [problem for part in parts for problem in part.problems]:
        sys.exit("\n".join(problems))


def parsed() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu")
    arguments.add_argument("--sizes", choices=("full", "small"), default="full", help="of the networks of rates")
    arguments.add_argument("--only", default=",".join(PARTS), help="parts, by comma")
    arguments.add_argument("--cases", default="", help="only cases with one of these in their name, e.g. vsepp.,scan")
    arguments.add_argument("--processes", type=int, default=1, help="at once, for curves and waits: a core each")
    return arguments.parse_args()


def check_curves(asked: Asked) -> page.Part:
    say("curves")
    found = list(curves.compare(asked.cases, asked.data, asked.compared, asked.precisions, processes=asked.processes))
    return page.of_curves(found, timing.device_title(asked.compared))


def check_waits(asked: Asked) -> page.Part:
    say("waits")
    measure = partial(step_waits.waits_of, data=asked.data, device=asked.compared)
    found = side_by_side(measure, asked.cases.values(), asked.processes, device=asked.compared)
    return page.of_waits(dict(zip(asked.cases, found, strict=True)))


def check_resume(asked: Asked) -> page.Part:
    say("resume")
    networks = [name for name in ("vsepp", "vse_infinity", "scan") if any(name in case for case in asked.cases)]
    return page.of_resumed({name: attempts.resumed(asked.data, str(asked.device), name) for name in networks})


def check_memory(asked: Asked) -> page.Part:
    say("memory")
    return page.of_memory(attempts.out_of_memory(asked.data, str(asked.device)))


def check_share(asked: Asked) -> page.Part:
    say("share")
    settings = {"batch_size": BATCH[asked.sizes]}
    alone, halves = (
        sharing.measured(
            asked.network("vsepp"), asked.large, str(asked.device), trials=trials, threads=1, training=settings,
            seconds=SHARED_S[asked.sizes],
        )
        for trials in (1, 2)
    )
    return page.of_halves(alone, halves)


def check_rates(asked: Asked) -> page.Part:
    say("rates")
    repeats = REPEATS[asked.sizes]
    peaks = {name: timing.product_rate(asked.device, name, repeats=repeats) for name in asked.precisions}
    chosen = {name: asked.network(name) for name in NETWORKS if any(name in case for case in asked.cases)}
    found = []
    for rate in rates.rates(chosen, asked.large, asked.device, peaks, batch=BATCH[asked.sizes], repeats=repeats):
        found.append(rate)
        say(f"rates of {rate.network} in {rate.precision}: {rate.pairs_s:,.0f} pairs/s")
    moved = rates.transfer(rates.host_batches(asked.large, BATCH[asked.sizes]), asked.device)
    return page.of_rates(found, peaks, moved)


def say(part: str) -> None:
    print(f"{part} ...", file=sys.stderr, flush=True)


CHECKS: dict[str, Callable[[Asked], page.Part]] = {
    "curves": check_curves, "waits": check_waits, "resume": check_resume, "memory": check_memory,
    "share": check_share, "rates": check_rates,
}


if __name__ == "__main__":
    main()
