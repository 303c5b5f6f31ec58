"""`vsetune study simulate`: what a study's settings would find and cost where the best configuration is known."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column

from vsetune.cli.output import FittingTable, interruptible, messages, print_json, results, say
from vsetune.config.spec.base import known_name
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import ConfigError, UsageError
from vsetune.study.study_file import load_study

if TYPE_CHECKING:
    from vsetune.study.simulation.landscapes import Trainings
    from vsetune.study.simulation.simulated_search import SimulatedSearch, SimulationSettings
    from vsetune.study.simulation.simulated_studies import SearchSummary

SIMULATE_EXAMPLE = "Example: vsetune study simulate studies/quickstart.yaml --workers 8"


def simulate_study(
    file: Annotated[Path, typer.Argument(help="study file (YAML)", show_default=False)],
    workers: Annotated[int, typer.Option(min=1, max=10_000, help="trials at a time")] = 8,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="searches per landscape")] = 10,
    epoch_seconds: Annotated[
        float, typer.Option(min=0.001, max=1e6, help="of one epoch; budgets in seconds and hours depend on it")
    ] = 60.0,
    landscape: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="only this one; may be repeated. Default: all")
    ] = None,
    curves: Annotated[
        str | None, typer.Option(metavar="STUDY", help="recorded curves of this study in place of made-up ones")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="the same as JSON")] = False,
) -> None:
    """Say what the search of a study would find and cost, in virtual time, before anything is trained.

    Takes `search`, `scheduler`, `budget` and `training.epochs` of the file through the code that runs a study, one cell
    at a time, on made-up trainings whose best configuration is known. Networks, losses, their ranges and data play no
    part; a validation is made after each epoch, with a noise of 0.5 points. A target that is the best of a baseline is
    54 % here, where the best configuration reaches 60.

    With --curves those cells of the file are searched that STUDY has recorded with the
    same space: a configuration gets the curve of the nearest whole trial there, as it was.
    """
    study = load_study(file)
    from vsetune.study.simulation.simulated_search import (
        MISS_FACTOR,
        SimulationSettings,
        promised_epochs,
        require_affordable,
    )
    from vsetune.study.simulation.simulated_studies import simulate, summaries

    chosen = _made_up(landscape or []) if curves is None else _recorded(study, curves, landscape or [], file)
    settings = SimulationSettings(workers=workers, epoch_seconds=epoch_seconds)
    if not isinstance(study.search.target, str):
        settings = replace(settings, target=study.search.target)
    require_affordable(study, settings, where=str(file))
    found = []
    with interruptible("nothing was kept"), messages.status("simulating") as status:
        for search in simulate(study, chosen, seeds=seeds, settings=settings):
            found.append(search)
            status.update(f"simulating: {len(found)} of {len(chosen) * seeds} searches, at {search.landscape}")
    miss_epochs = MISS_FACTOR * promised_epochs(study, settings)
    rows = summaries(found, miss_epochs=miss_epochs)
    if study.search.objective == "epochs_to_target":
        _show_targets(study, found, chosen, settings, as_json=as_json)
        return
    if as_json:
        print_json({"study": study.study, "miss_epochs": miss_epochs, "landscapes": [asdict(row) for row in rows]})
        return
    results.print(_table(study, rows, workers=workers))
    say(
        f"hit: the pick is truly within 0.5 points of the {'optimum' if curves is None else 'best recorded'} "
        "(95 % interval); found: a whole trial is; epochs to hit: trained by all trials "
        f"until then, geometric mean, a miss as {miss_epochs:g}; costly: something truly better by > 0.5 was pruned"
    )


def _made_up(names: list[str]) -> list[Trainings]:
    """Synthetic trainings with these names, or all of them where no name is given."""
    from vsetune.study.simulation.landscapes import LANDSCAPES

    try:
        known = {known_name(name, LANDSCAPES, "landscape") for name in names or LANDSCAPES}
    except ValueError as error:
        raise ConfigError(f"--landscape: {error}") from error
    return [each for name, each in LANDSCAPES.items() if name in known]


def _recorded(study: StudySpec, source: str, names: list[str], file: Path) -> list[Trainings]:
    """Trainings recorded by the study `source`, each reported in one line."""
    from vsetune.records.studies import Studies
    from vsetune.study.simulation.recorded_curves import recorded_landscapes

    if names:
        raise UsageError(f"--landscape: got {names[0]} and --curves {source}, need one of the two; leave one out")
    if study.search.objective == "epochs_to_target" and isinstance(study.search.target, str):
        raise UsageError(
            f"--curves: search.target of {file} is what a baseline will reach; write the M-Recall that it reached"
        )
    found = recorded_landscapes(study, Studies(), source, where=str(file))
    for landscape in found:
        say(landscape.says())
    return [*found]


def _show_targets(
    study: StudySpec, found: list[SimulatedSearch], chosen: list[Trainings], settings: SimulationSettings, *,
    as_json: bool,
) -> None:
    """For studies that search for epochs to a target, where the M-Recall of the winner is not the objective."""
    from vsetune.study.simulation.simulated_studies import NEAR_SOONEST, target_summaries

    rows = target_summaries(
        found, target=settings.target, epochs=study.training.epochs, landscapes={each.name: each for each in chosen},
    )
    if as_json:
        plain = [
            {key: None if isinstance(value, float) and not math.isfinite(value) else value
             for key, value in asdict(row).items()} for row in rows
        ]
        print_json({"study": study.study, "target": settings.target, "landscapes": plain})
        return
    names = ("soonest", "pick", "times the\nsoonest", "near", "ends at", "trials")
    shown = [
        (
            row.name, f"{row.soonest:.1f}", f"{row.pick:.1f}", f"{row.ratio:.2f}", f"{row.near:.2f}",
            f"{row.height:.1f}", f"{row.trials:.1f}",
        )
        for row in rows
    ]
    results.print(FittingTable(
        ["landscape", *(Column(name, justify="right") for name in names)], shown,
        title=f"{study.study}: {_settings_of(study)}; {settings.workers} workers",
    ))
    say(
        f"true epochs to M-Recall {settings.target:g} % ({max(each.top for each in found):g} is the best), medians: of "
        "the soonest configuration and "
        f"of the pick; near: share of picks within {NEAR_SOONEST:g} times the soonest; ends at: M-Recall after a "
        "whole training of the pick"
    )


def _table(study: StudySpec, rows: list[SearchSummary], *, workers: int) -> FittingTable:
    right = (
        "hit", "found", "epochs\nto hit", "below\nthe best", "costly", "epochs", "trials", "pruned", "failed", "hours",
    )
    return FittingTable(
        ["landscape", *(Column(name, justify="right") for name in right)], [_row(row) for row in rows],
        title=f"{study.study}: {_settings_of(study)}; {workers} workers, {rows[0].searches} searches a landscape",
        sections=[place for place, row in enumerate(rows) if row.name == "all"],
    )


def _row(row: SearchSummary) -> list[str]:
    low, high = row.hits_within
    return [
        row.name, f"{row.hits:.2f} ({low:.2f}-{high:.2f})", f"{row.found:.2f}", f"{row.epochs_to_hit:.0f}",
        "-" if row.shortfall is None else f"{row.shortfall:.2f}", f"{row.costly:.2f}", f"{row.epochs:.0f}",
        f"{row.trials:.1f}", f"{row.pruned:.1f}", f"{row.failed:.1f}", f"{row.seconds / 3600:.1f}",
    ]


def _settings_of(study: StudySpec) -> str:
    search, scheduler, budget = study.search, study.scheduler, study.budget
    told = {
        "none": "no pruning", "median": f"median (grace {scheduler.grace_epochs:g})",
        "predicted": f"predicted, {scheduler.least_chance:g} to win (grace {scheduler.grace_epochs:g})",
        "patience": f"patience {scheduler.patience_epochs:g} over the median (grace {scheduler.grace_epochs:g})",
    }
    halving = f"{scheduler.kind} (grace {scheduler.grace_epochs:g}, factor {scheduler.reduction_factor:g})"
    most = budget.epochs_per_cell or search.configurations * study.training.epochs
    parts = [
        f"{search.start} start, then {search.sampler}" if search.learns else search.sampler,
        told.get(scheduler.kind, halving), f"{most:g} epochs a cell, {study.training.epochs:g} a trial",
    ]
    if budget.device_seconds_per_cell is not None:
        parts.append(f"{budget.device_seconds_per_cell:g} device-seconds a cell")
    return ", ".join(parts)
