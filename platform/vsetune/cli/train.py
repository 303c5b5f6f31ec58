"""`vsetune train`: one configuration, in this process, without Ray and without the tracking store."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from vsetune.cli.options import Device, Json, StudyFile, flag, require_known
from vsetune.cli.output import inform, interruptible, print_json, results, stderr
from vsetune.errors import StaleCheckpoint

app = typer.Typer()


@app.command(epilog="Example: vsetune train studies/quickstart.yaml --cell vsepp.info_nce")
def train(
    file: StudyFile,
    cell: Annotated[str | None, typer.Option(help="network.loss of the study; default: its first cell")] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**63 - 1, help="default: the study's first seed")] = None,
    device: Device = "auto",
    fresh: Annotated[bool, flag("--fresh", "start over instead of continuing from the last checkpoint")] = False,
    as_json: Json = False,
) -> None:
    """Train one cell of a study at its default hyperparameters, to look at or to debug. Nothing is tracked."""
    from vsetune.api.training import open_training
    from vsetune.study.preparation import prepare_study

    prepared = prepare_study(file, stderr)
    if cell:
        require_known(cell, [each.name for each in prepared.cells], "cell", at="--cell")
    try:
        attempt = open_training(prepared, cell=cell, seed=seed, device=device, fresh=fresh)
    except StaleCheckpoint as error:
        raise StaleCheckpoint(error.problem.worded(f"{error} That is what --fresh does.")) from error
    trial = attempt.trial.trial
    inform(f"{trial} on {attempt.device}, {attempt.parameters:,} parameters, files in {attempt.best_path.parent}")
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
    table = Table("number", "value", title=trial, title_justify="left")
    for name in sorted(summary):
        is_whole = summary[name].is_integer() or abs(summary[name]) >= 1000
        table.add_row(name, f"{summary[name]:,.0f}" if is_whole else f"{summary[name]:.4g}")
    results.print(table)
