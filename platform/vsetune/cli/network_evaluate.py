"""`vsetune networks evaluate`: recalls of imported weights, or of a trial's, on any data set that they can read."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vsetune.cli.output import interruptible, print_json, results, say
from vsetune.cli.scoring import recall_table, scoring
from vsetune.config.spec.paths import under_home

if TYPE_CHECKING:
    from vsetune.networks.importing.stored import StoredNetwork

EXAMPLE = "Example: vsetune networks evaluate quickstart/vsepp.lseh-c000-s0 data/flickr30k --split test"


def evaluate_network(
    weights: Annotated[str, typer.Argument(
        help="weights.safetensors of `networks import`, best.safetensors of a trial, or STUDY/TRIAL",
        show_default=False,
    )],
    data: Annotated[
        str, typer.Argument(help="data set: folder or s3:// prefix; relative: under VSETUNE_HOME", show_default=False)
    ],
    split: Annotated[str, typer.Option(help="which to score")] = "test",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="the numbers as JSON")] = False,
) -> None:
    """Score imported weights, or the best weights of a trial, on a split of a data set, without training.

    Captions are numbered by the vocabulary of the weights; a word that it lacks is read as its unknown word. The data
    set must hold features as the weights were trained with, of the same width.
    """
    from vsetune.jobs.fitting import require_readable
    from vsetune.scoring.device import choose_device
    from vsetune.training.stored_scores import evaluate_stored, load_stored, other_features

    with interruptible("nothing was written"), _named(weights) as (file, described):
        stored = load_stored(
            file, under_home(data), split=split, device=choose_device(device), described=described
        )
        require_readable(stored.trial, stored.dataset, where=weights)
        difference = other_features(stored)
        if difference is not None:
            say(f"warning: {difference}; recalls mean something only where these are the same features")
        with scoring([stored.held.name]) as (report,):
            numbers = evaluate_stored(stored, report=report)
    found = stored.words
    if as_json:
        words = None if found is None else {"found": found[0], "of": found[1]}
        print_json({
            "weights": weights, "network": stored.held.name, "source": stored.held.source,
            "data": stored.dataset.manifest.name, "split": split, "words": words, **numbers,
        })
        return
    name = f"{stored.held.name} ({stored.held.source})"
    results.print(recall_table(f"recalls on {split}, per cent", [(name, numbers)], of="network"))
    if found is not None:
        say(f"{found[0]} of {found[1]} words of {data} are known to the weights")


@contextmanager
def _named(weights: str) -> Iterator[tuple[Path, StoredNetwork | None]]:
    """The file, as long as it is needed, and the description of its network that it may lack."""
    from vsetune.jobs.kept_plugins import load_kept
    from vsetune.jobs.recorded import find_attempt, require_best_weights
    from vsetune.networks.importing.stored import StoredWeights
    from vsetune.records.studies import Studies
    from vsetune.training.trained import described_by

    path = Path(weights)
    if path.suffix == ".safetensors" or path.exists():
        stored = StoredWeights.open(path)
        if stored.notes is not None:
            load_kept(stored.notes.plugins, path.absolute().parent.parent.parent, where=weights)
        yield path, None
        return
    store = Studies()
    attempt = find_attempt(store, weights, finished=True)
    trial = attempt.trial()
    with tempfile.TemporaryDirectory() as into:
        file = require_best_weights(store, attempt, Path(into))
        yield file, described_by(file, trial)
