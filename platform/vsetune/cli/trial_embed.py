"""`vsetune trial embed`: the embeddings of a split, for other programs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from vsetune.cli.options import Device, Run, Split, found_attempts, load_run, place_to_write
from vsetune.cli.output import inform, interruptible, results, stderr
from vsetune.errors import UsageError
from vsetune.home.paths import home

app = typer.Typer()


class Format(StrEnum):
    """Kind of the files."""

    NPY = "npy"
    PARQUET = "parquet"


@app.command(epilog="Example: vsetune trial embed quickstart/vsepp.info_nce-c000-s0 --split test --format parquet")
def embed(
    run: Run,
    split: Split = None,
    format: Annotated[Format, typer.Option(help="npy: arrays, with names as CSV; parquet: tables")] = Format.NPY,
    output: Annotated[Path | None, place_to_write(help="folder; default: under VSETUNE_HOME/embeddings")] = None,
    device: Device = "auto",
) -> None:
    """Write the embeddings of a split by a trial's best network: a row for each image and for each caption, in the
    order of the split, with the ids of images and the texts of captions. Networks that score pairs have none."""
    from vsetune.data.stored.dataset import evaluated_split
    from vsetune.training.embedding_files import write_embeddings
    from vsetune.training.search_index import SearchIndex

    store, (attempt,) = found_attempts(run, finished=True)
    with interruptible("nothing was written"):
        trained = load_run(store, attempt, device)
        if trained.network.kind == "score":
            raise UsageError(
                "VSE-X052", "{run}: network {network} scores pairs and has no embedding of one item; name a trial of a "
                "network that embeds.", run=attempt.where, network=trained.trial.network.name,
            )
        chosen = split or evaluated_split(trained.trial.data, trained.dataset)
        trained.dataset.require_unchanged([chosen])
        with stderr.status("encoding"):
            index = SearchIndex.of_split(
                trained.network, trained.dataset, chosen, trial=trained.trial, device=trained.device
            )
    start = attempt.record.start
    name = f"{start.trial}-{chosen}" if start.number == 1 else f"{start.trial}-attempt{start.number}-{chosen}"
    folder = output or home() / "embeddings" / start.study / name
    for path in write_embeddings(index, folder, format=format.value):
        results.out(str(path.absolute()))
    inform(f"{len(index.images):,} images and {len(index.captions):,} captions of {chosen}")
