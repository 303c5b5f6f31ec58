"""Runs of the tracking store as commands name and load them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vsetune.cli.output import messages, say
from vsetune.cli.tracking_option import tracking_of
from vsetune.errors import UnusableStore

if TYPE_CHECKING:
    from vsetune.jobs.recorded import RecordedAttempt
    from vsetune.tracking.store import TrackingStore
    from vsetune.training.trained import TrainedTrial

Run = Annotated[
    str, typer.Argument(help="MLflow run id of an attempt, or STUDY/TRIAL for its latest", show_default=False)
]
Split = Annotated[str | None, typer.Option(help="default: the split that the trial was evaluated on")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N")]


def recorded_store(tracking_uri: str | None) -> TrackingStore:
    """The store that a command reads, for `--tracking-uri`. StorageError where there is none."""
    from vsetune.jobs.store_address import existing_store

    return existing_store(tracking_of(tracking_uri))


def keep_with_run(keep: Callable[[], None], *, kept: str) -> None:
    """Calls `keep` for a page that is written already, and says where it is kept. A store that takes no files, as that
    of a copied home, which would put them into the original, costs the page nothing: the reason is said instead."""
    try:
        keep()
    except UnusableStore as error:
        say(f"the page is not kept with its run: {error}")
    else:
        say(kept)


def load_run(store: TrackingStore, attempt: RecordedAttempt, device: str) -> TrainedTrial:
    """The best network of an attempt; errors as of `load_recorded`."""
    from vsetune.jobs.recorded import load_recorded
    from vsetune.scoring.device import choose_device

    with tempfile.TemporaryDirectory() as into, messages.status(f"loading {attempt.record.start.trial}"):
        return load_recorded(store, attempt, device=choose_device(device), into=Path(into))
