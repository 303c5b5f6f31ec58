"""`vsetune train`: one configuration, in this process, without Ray and without the tracking store."""

from __future__ import annotations

import shutil
from typing import Annotated

import typer
from rich.table import Table

from vsetune.cli.options import Device, Json, StudyFile, flag, require_known
from vsetune.cli.output import inform, interruptible, print_json, results, stderr
from vsetune.config.study.cells import build_trial
from vsetune.config.study.resources import Needs
from vsetune.errors import StaleCheckpoint

app = typer.Typer()


@app.command(epilog="Example: vsetune train studies/quickstart.yaml --cell vsepp.lseh")
def train(
    file: StudyFile,
    cell: Annotated[str | None, typer.Option(help="network.loss of the study; default: its first cell")] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**63 - 1, help="default: the study's first seed")] = None,
    device: Device = "auto",
    fresh: Annotated[bool, flag("--fresh", "start over instead of continuing from the last checkpoint")] = False,
    as_json: Json = False,
) -> None:
    """Train one cell of a study at its default hyperparameters, to look at or to debug. Nothing is tracked."""
    from vsetune.study.first_stages import kept_stage
    from vsetune.study.preparation import prepare_study
    from vsetune.study.study_home import TRAIN_FOLDER
    from vsetune.training.attempt import Attempt

    prepared = prepare_study(file, stderr)
    cells = {each.name: each for each in prepared.cells}
    chosen = cells[require_known(cell, cells, "cell", at="--cell")] if cell else prepared.cells[0]
    used_seed = chosen.seeds[0] if seed is None else seed
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
        raise StaleCheckpoint(error.problem.worded(f"{error} That is what --fresh does.")) from error
    inform(f"{trial.trial} on {attempt.device}, {attempt.parameters:,} parameters, files in {folder}")
    while not attempt.is_finished:
        with interruptible("the same command without --fresh goes on"), stderr.status("training"):
            point = attempt.advance()
        inform(
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
