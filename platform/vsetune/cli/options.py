"""Options of several commands: the tracking URI, and recorded attempts by name."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vsetune.cli.output import messages
from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.study_spec import TrackingSpec

if TYPE_CHECKING:
    from vsetune.records.studies import Studies
    from vsetune.study.recorded import RecordedAttempt
    from vsetune.training.trained import TrainedTrial


Tracking = Annotated[
    str | None,
    typer.Option(metavar="URI", help="default: $MLFLOW_TRACKING_URI, else mlflow.db under VSETUNE_HOME"),
]


def tracking_of(uri: str | None) -> TrackingSpec:
    """The store that the option names. ConfigError in one line for an invalid URI."""
    return parse_spec({"uri": uri}, TrackingSpec, where="--tracking-uri")


Run = Annotated[
    str, typer.Argument(help="STUDY/TRIAL for its latest attempt, or STUDY/TRIAL/NUMBER", show_default=False)
]
Split = Annotated[str | None, typer.Option(help="default: the split that the trial was evaluated on")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N")]


def load_run(store: Studies, attempt: RecordedAttempt, device: str) -> TrainedTrial:
    """The best network of an attempt; errors as of `load_recorded`."""
    from vsetune.study.recorded import load_recorded
    from vsetune.training.device import choose_device

    with tempfile.TemporaryDirectory() as into, messages.status(f"loading {attempt.record.start.trial}"):
        return load_recorded(store, attempt, device=choose_device(device), into=Path(into))
