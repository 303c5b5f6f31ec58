"""What searches find and cost in virtual time: every sampler and every stopping rule of ours, on equal epochs.

    python benchmarks/search_settings.py [--seeds 20] [--workers 2 8 64] [--only gp "patience 4"] [--kept FILE]
    python benchmarks/search_settings.py --objective epochs_to_target [--target 54] [--only tpe] [--seeds 20] ...

A cell with 648 epochs, 27 a trial, on the landscapes of `simulation`, by the ledger and the rules of real studies,
by default those of a study; the first seven landscapes and the eight hard ones apart. hit: the pick is truly within 0.5
points of the optimum (95 % interval); found: a whole trial is; epochs to hit: geometric mean, a miss as 1,296 (95 %
interval); costly: something truly better by > 0.5 was stopped; worst: the landscape with the fewest hits. Workers
beyond the trials that a cell has at a time change nothing; those searches are run once.

--kept keeps every search in a file, a line each; those that it has already are not run again. --from-seed N: settings
that were chosen on some seeds are reported on others. --output keeps every row as JSON.

With --objective epochs_to_target the default settings, or --only those, search each landscape for the fewest epochs to
--target M-Recall, and beside it for M-Recall; both picks are held against the soonest configuration there is, in true
epochs, without noise.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from simulation.landscapes import HARD, LANDSCAPES
from simulation.simulated_search import (
    MISS_FACTOR,
    SimulatedSearch,
    SimulationSettings,
    promised_epochs,
    simulate_search,
)
from simulation.simulated_studies import SearchSummary, TargetSummary, summaries, target_summaries
from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.study_spec import StudySpec
from vsetune.study.cell_budget import at_once

EPOCHS, CONFIGURATIONS = 27, 24
Settings = dict[str, dict[str, Any]]
VARIANTS: dict[str, Settings] = {
    "default": {},
    "two at once": {"search": {"at_once": 2}},
    "four at once": {"search": {"at_once": 4}},
    "eight at once": {"search": {"at_once": 8}},
    "random": {"search": {"sampler": "random"}},
    "sobol": {"search": {"sampler": "sobol"}},
    "tpe": {"search": {"sampler": "tpe"}},
    "patience": {"scheduler": {"kind": "patience"}},
    "patience, grace 1": {"scheduler": {"kind": "patience", "grace_epochs": 1}},
    "median": {"scheduler": {"kind": "median"}},
    "asha": {"scheduler": {"kind": "asha"}},
    "hyperband": {"scheduler": {"kind": "hyperband"}},
    "tpe, patience": {"search": {"sampler": "tpe"}, "scheduler": {"kind": "patience"}},
    "tpe, patience, grace 1": {"search": {"sampler": "tpe"}, "scheduler": {"kind": "patience", "grace_epochs": 1}},
}
BEYOND = {
    f"beyond_{name}": replace(each, name=f"beyond_{name}", centre=((1.1, 1.4), *each.centre[1:]))
    for name, each in LANDSCAPES.items() if name in ("smooth", "slow_starters", "ridge", "many_dimensions")
}
"""Landscapes whose best learning rate is beyond its range, by 0.1 to 0.4 of its width."""
GROUPS = {
    "first": [name for name in LANDSCAPES if name not in HARD], "hard": list(HARD), "beyond": list(BEYOND),
}
Task = tuple[str, int, str, int]
"""(variant, workers, landscape, seed)."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 8, 64])
    parser.add_argument("--only", nargs="+", metavar="VARIANT", choices=list(VARIANTS))
    parser.add_argument("--groups", nargs="+", choices=list(GROUPS), default=["first", "hard"])
    parser.add_argument("--from-seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--kept", type=Path)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--objective", choices=["best_m_recall", "epochs_to_target"], default="best_m_recall")
    parser.add_argument("--target", type=float, default=SimulationSettings.target)
    asked = parser.parse_args()
    if asked.objective == "epochs_to_target":
        targets(asked, asked.only or ["default"])
        return
    asked.only = asked.only or list(VARIANTS)
    console = Console(width=150)
    found = all_searched(asked, console)
    plain = []
    for workers in asked.workers:
        for group in asked.groups:
            landscapes = GROUPS[group]
            rows = {
                name: summaries(
                    [found[task] for task in tasks_of(asked, name, workers) if task[2] in landscapes],
                    miss_epochs=MISS_FACTOR * promised_epochs(study_of(name), SimulationSettings()),
                ) for name in asked.only
            }
            title = f"{workers} workers, {asked.seeds} seeds x {len(landscapes)} {group} landscapes"
            console.print(table_of(rows, title))
            plain += [{"variant": name, "workers": workers, **asdict(row)} for name in rows for row in rows[name]]
    if asked.output:
        asked.output.write_text(json.dumps(plain, indent=1))


def tasks_of(asked: argparse.Namespace, name: str, workers: int) -> list[Task]:
    """Seed by seed, so that what is kept of a run that was stopped is of all landscapes."""
    search = study_of(name).search
    busy = min(workers, max(at_once(search, asked, workers) for asked in (0, search.configurations)))
    seeds = range(asked.from_seed, asked.from_seed + asked.seeds)
    return [(name, busy, landscape, seed) for seed in seeds for group in asked.groups for landscape in GROUPS[group]]


def all_searched(asked: argparse.Namespace, console: Console) -> dict[Task, SimulatedSearch]:
    """Every search that the tables need, from the file or run now; all settings of a seed before the next one."""
    wanted = [task for workers in asked.workers for name in asked.only for task in tasks_of(asked, name, workers)]
    found = read_kept(asked.kept) if asked.kept else {}
    tasks = sorted({task for task in wanted if task not in found}, key=lambda task: (task[3], wanted.index(task)))
    with mapping(asked.processes) as run:
        for task, search in track(
            zip(tasks, run(searched, tasks), strict=True), "searching", len(tasks), console=console, transient=True
        ):
            found[task] = search
            if asked.kept:
                with asked.kept.open("a") as kept:
                    kept.write(json.dumps([task, asdict(search)]) + "\n")
    return found


@contextmanager
def mapping(processes: int) -> Iterator[Any]:
    """A `map` over so many processes, this one where it is one."""
    if processes == 1:
        yield map
        return
    with ProcessPoolExecutor(processes) as pool:
        yield pool.map


def read_kept(file: Path) -> dict[Task, SimulatedSearch]:
    lines = file.read_text().splitlines() if file.exists() else []
    pairs = [json.loads(line) for line in lines]
    return {(task[0], task[1], task[2], task[3]): SimulatedSearch(**search) for task, search in pairs}


def targets(asked: argparse.Namespace, variants: Sequence[str]) -> None:
    """Both objectives on equal epochs, landscape by landscape."""
    objectives = ("epochs_to_target", "best_m_recall")
    tables = [(variant, workers) for workers in asked.workers for variant in variants]
    tasks = [
        (objective, variant, workers, seed, asked.target)
        for variant, workers in tables for objective in objectives for seed in range(asked.seeds)
    ]
    console = Console(width=130)
    with ProcessPoolExecutor(asked.processes) as pool:
        done = list(track(pool.map(searched_for, tasks), "searching", len(tasks), console=console, transient=True))
    plain = []
    for variant, workers in tables:
        rows = {
            objective: target_summaries(
                [search for task, found in zip(tasks, done, strict=True) if task[:3] == (objective, variant, workers)
                 for search in found], target=asked.target, epochs=EPOCHS,
            ) for objective in objectives
        }
        title = f"{variant}, epochs to M-Recall {asked.target:g}: {workers} workers, {asked.seeds} seeds a landscape"
        console.print(table_of_targets(rows, title))
        about = {"variant": variant, "workers": workers}
        plain += [{**about, "objective": key, **asdict(row)} for key, found in rows.items() for row in found]
    if asked.output:
        asked.output.write_text(json.dumps(plain, indent=1))


def searched_for(task: tuple[str, str, int, int, float]) -> list[SimulatedSearch]:
    """One seed on every landscape."""
    objective, variant, workers, seed, target = task
    study = study_of(variant)
    study = study.model_copy(update={
        "search": study.search.model_copy(update={"objective": objective, "target": target}),
    })
    settings = SimulationSettings(workers=workers, target=target)
    return [simulate_search(study, landscape, seed=seed, settings=settings) for landscape in LANDSCAPES.values()]


def table_of_targets(rows: dict[str, list[TargetSummary]], title: str) -> Table:
    names = ("soonest", "pick", "times the fastest", "within 10 %", "ends at", "trials")
    table = Table("landscape", "searched for", *names, title=title, title_justify="left")
    for found in zip(*rows.values(), strict=True):
        for objective, row in zip(rows, found, strict=True):
            table.add_row(
                row.name, objective, f"{row.soonest:.1f}", f"{row.pick:.1f}", f"{row.ratio:.2f}", f"{row.near:.2f}",
                f"{row.height:.1f}", f"{row.trials:.1f}",
            )
    return table


def study_of(variant: str) -> StudySpec:
    settings = VARIANTS[variant]
    return parse_spec({
        "study": "table", "data": {"path": "x"}, "networks": [{"name": "vsepp"}], "losses": [{"name": "lmh"}],
        "training": {"epochs": EPOCHS}, "scheduler": settings.get("scheduler", {}),
        "search": {"configurations": CONFIGURATIONS, **settings.get("search", {})},
    }, StudySpec, where=variant)


def searched(task: Task) -> SimulatedSearch:
    variant, workers, landscape, seed = task
    settings = SimulationSettings(workers=workers)
    return simulate_search(study_of(variant), {**LANDSCAPES, **BEYOND}[landscape], seed=seed, settings=settings)


def table_of(rows: dict[str, Sequence[SearchSummary]], title: str) -> Table:
    names = ("hit", "found", "epochs to hit", "costly", "below the best", "epochs", "trials", "worst")
    table = Table("setting", *names, title=title, title_justify="left")
    for name, found in rows.items():
        *landscapes, every = found
        low, high = every.hits_within
        soon, late = every.epochs_to_hit_within
        worst = min(landscapes, key=lambda one: one.hits)
        short = "-" if every.shortfall is None else f"{every.shortfall:.2f}"
        table.add_row(
            name, f"{every.hits:.2f} ({low:.2f}-{high:.2f})", f"{every.found:.2f}",
            f"{every.epochs_to_hit:.0f} ({soon:.0f}-{late:.0f})", f"{every.costly:.3f}",
            short, f"{every.epochs:.0f}", f"{every.trials:.1f}", f"{worst.name} {worst.hits:.2f}",
        )
    return table


if __name__ == "__main__":
    main()
