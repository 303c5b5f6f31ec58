"""How long ten thousand trials on a thousand virtual workers take to simulate, with a sampler that learns and one that
does not.

    python benchmarks/simulated_scale.py [--trials 10000] [--workers 1000] [--epochs 9] [--samplers random tpe]

One cell on the smooth landscape, as many trials at a time as there are workers, through the ledger, the search and the
stopping rule of real studies. Prints seconds, trials and epochs by sampler, and the ratio of processor seconds to the
first. Ten thousand trials are to take five minutes or less on two cores.
"""

from __future__ import annotations

import argparse
import time

from rich.console import Console
from rich.table import Table

from simulation.landscapes import LANDSCAPES
from simulation.simulated_search import SimulatedSearch, SimulationSettings, simulate_search
from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.study_spec import StudySpec


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10_000, help="whole trainings of the budget")
    parser.add_argument("--workers", type=int, default=1_000)
    parser.add_argument("--epochs", type=int, default=9, help="of a whole training")
    parser.add_argument("--samplers", nargs="+", default=["random", "tpe"])
    asked = parser.parse_args()
    table = Table(
        "sampler", "seconds", "processor", "ratio", "trials", "stopped", "epochs", "virtual hours", "below the best"
    )
    first = None
    for sampler in asked.samplers:
        seconds, busy, found = simulated(sampler, asked)
        first = first or busy
        table.add_row(
            sampler, f"{seconds:.1f}", f"{busy:.1f}", f"{busy / first:.2f}", str(found.trials), str(found.pruned),
            f"{found.epochs:.0f}", f"{found.seconds / 3600:.1f}", f"{found.shortfall:.2f}",
        )
    Console(width=120).print(table)


def simulated(sampler: str, asked: argparse.Namespace) -> tuple[float, float, SimulatedSearch]:
    """Seconds that passed, seconds of the processor, and what came of it."""
    study = parse_spec(
        {
            "study": "scale", "data": {"path": "simulated"}, "networks": [{"name": "vsepp"}],
            "losses": [{"name": "lseh"}], "baseline": "lseh", "training": {"epochs": asked.epochs},
            "search": {"sampler": sampler, "configurations": asked.trials, "at_once": asked.workers},
        },
        StudySpec, where="simulated_scale",
    )
    settings = SimulationSettings(workers=asked.workers)
    start, busy = time.perf_counter(), time.process_time()
    found = simulate_search(study, next(iter(LANDSCAPES.values())), seed=0, settings=settings)
    return time.perf_counter() - start, time.process_time() - busy, found


if __name__ == "__main__":
    main()
