"""The option --tracking-uri, checked before a store is opened."""

from __future__ import annotations

from typing import Annotated

import typer

from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.study_spec import TrackingSpec

Tracking = Annotated[
    str | None,
    typer.Option(metavar="URI", help="default: $MLFLOW_TRACKING_URI, else mlflow.db under VSETUNE_HOME"),
]


def tracking_of(uri: str | None) -> TrackingSpec:
    """The store that the option names. ConfigError in one line for an invalid URI."""
    return parse_spec({"uri": uri}, TrackingSpec, where="--tracking-uri")
