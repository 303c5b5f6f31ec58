"""`vsetune networks evaluate`: recalls of imported weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vsetune.cli.output import interruptible, print_json, results, say
from vsetune.cli.scoring import recall_table, scoring
from vsetune.config.spec.paths import under_home

EXAMPLE = "Example: vsetune networks evaluate model_best-vsetune/weights.safetensors data/flickr30k"


def evaluate_network(
    weights: Annotated[Path, typer.Argument(help="weights.safetensors of `networks import`", show_default=False)],
    data: Annotated[
        str, typer.Argument(help="data set: folder or s3:// prefix; relative: under VSETUNE_HOME", show_default=False)
    ],
    split: Annotated[str, typer.Option(help="which to score")] = "test",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="the numbers as JSON")] = False,
) -> None:
    """Score imported weights on a split of a data set, without training: the recalls that their paper should print.

    Captions are numbered by the released vocabulary; a word that it lacks is read as its unknown word. The data set
    must hold the features that the weights were trained with, of the same width and the same number of regions.
    """
    from vsetune.jobs.fitting import require_readable
    from vsetune.scoring.device import choose_device
    from vsetune.training.imported_scores import evaluate_imported, load_imported

    with interruptible("nothing was written"):
        imported = load_imported(weights, under_home(data), split=split, device=choose_device(device))
        require_readable(imported.trial, imported.dataset, where=str(weights))
        with scoring([imported.held.name]) as (report,):
            numbers = evaluate_imported(imported, report=report)
    found = imported.words
    if as_json:
        words = None if found is None else {"found": found[0], "of": found[1]}
        print_json({
            "weights": str(weights), "network": imported.held.name, "source": imported.held.source,
            "data": imported.dataset.manifest.name, "split": split, "words": words, **numbers,
        })
        return
    name = f"{imported.held.name} ({imported.held.source})"
    results.print(recall_table(f"recalls on {split}, per cent", [(name, numbers)], of="network"))
    if found is not None:
        say(f"{found[0]} of {found[1]} words of {data} are known to the weights")
