"""`vsetune train`: one configuration, in this process, without Ray and without the tracking store."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from vsetune.cli.output import interruptible, messages, print_json, results, say
from vsetune.config.spec.base import known_name
from vsetune.errors import ConfigError, StaleCheckpoint

EXAMPLE = "Example: vsetune train studies/quickstart.yaml --cell vsepp.lseh"


def train(
    file: Annotated[Path, typer.Argument(help="study file (YAML)", show_default=False)],
    cell: Annotated[str | None, typer.Option(help="network.loss of the study; default: its first cell")] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**63 - 1, help="default: the study's first seed")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N")] = "auto",
    fresh: Annotated[
        bool, typer.Option("--fresh", metavar="", help="start over instead of continuing from the last checkpoint")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="the summary as JSON")] = False,
) -> None:
    """Train one cell of a study at its default hyperparameters, to look at or to debug. Nothing is tracked."""
    from vsetune.config.study.cells import build_trial
    from vsetune.config.study.resources import Needs
    from vsetune.study.first_stages import kept_stage
    from vsetune.study.preparation import prepare_study
    from vsetune.study.study_home import TRAIN_FOLDER
    from vsetune.training.attempt import Attempt

    prepared = prepare_study(file, messages)
    cells = {each.name: each for each in prepared.cells}
    try:
        chosen = cells[known_name(cell, cells, "cell")] if cell else prepared.cells[0]
    except ValueError as error:
        raise ConfigError(f"--cell: {error}") from error
    used_seed = prepared.spec.seeds[0] if seed is None else seed
    trial = build_trial(
        prepared.spec, chosen, chosen.defaults(), trial=f"{chosen.name}-defaults-s{used_seed}", seed=used_seed
    )
    folder = prepared.folder / TRAIN_FOLDER / trial.trial
    if fresh:
        shutil.rmtree(folder, ignore_errors=True)
    try:
        attempt = Attempt(
            trial, folder, device=device, threads=prepared.spec.resources.cpus, first_stage=kept_stage(trial, folder),
            reading=prepared.spec.resources.reading_of(Needs(gpus=1.0)),
        )
    except StaleCheckpoint as error:
        raise StaleCheckpoint(f"{error} That is what --fresh does.") from error
    say(f"{trial.trial} on {attempt.device}, {attempt.parameters:,} parameters, files in {folder}")
    while not attempt.is_finished:
        with interruptible("the same command without --fresh goes on"), messages.status("training"):
            point = attempt.advance()
        say(
            f"epoch {point.epoch:6.2f}  M-Recall {point.m_recall:5.2f} %  loss {point.metrics['train_loss']:.4g}  "
            f"{point.metrics['pairs_per_second']:,.0f} pairs/s"
        )
    summary = attempt.finish()
    if as_json:
        print_json(summary)
        return
    table = Table("number", "value", title=trial.trial, title_justify="left")
    for name in sorted(summary):
        is_whole = summary[name].is_integer() or abs(summary[name]) >= 1000
        table.add_row(name, f"{summary[name]:,.0f}" if is_whole else f"{summary[name]:.4g}")
    results.print(table)
