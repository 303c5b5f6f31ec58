"""Arguments and options that several commands share, and the checks of their values."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vsetune.cli.output import as_problem, inform, stderr
from vsetune.config.spec.base import known_name
from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.study_spec import TrackingSpec
from vsetune.errors import UsageError
from vsetune.home.addresses import shown_url
from vsetune.records.studies import Studies

if TYPE_CHECKING:
    from vsetune.study.recorded import RecordedAttempt
    from vsetune.training.trained import TrainedTrial


def flag(name: str, help_text: str, **settings: Any) -> Any:
    """An option without a value."""
    return typer.Option(name, metavar="", help=help_text, **settings)


def place_to_write(*names: str, **settings: Any) -> Any:
    """An option that names a file or folder to write."""
    return typer.Option(*names, callback=_require_local, **settings)


def _require_local(param: typer.CallbackParam, place: Path | None) -> Path | None:
    """UsageError for an address, which as a path would be in a folder called `s3:`."""
    if place is None or not "".join(place.parts[:1]).endswith(":"):
        return place
    address = shown_url(str(place).replace(":/", "://", 1))
    raise UsageError(
        "VSE-X006", "{option}: got {got}, need a place on this machine; write it there, then copy it.",
        option=param.opts[0], got=address,
    )


Json = Annotated[bool, flag("--json", "print the results as JSON")]
StudyFile = Annotated[Path, typer.Argument(help="study file (YAML)", show_default=False)]
StudyName = Annotated[str, typer.Argument(help="name of a study", show_default=False)]
StudyOrFile = Annotated[
    str, typer.Argument(metavar="STUDY_OR_FILE", help="name of a study, or its file", show_default=False)
]
DataPath = Annotated[
    str, typer.Argument(help="data set: folder or s3:// prefix; relative: under VSETUNE_HOME", show_default=False)
]
Cluster = Annotated[
    str | None,
    typer.Option("--address", metavar="HOST:PORT", help="Ray cluster; default: RAY_ADDRESS, or this machine"),
]
Baseline = Annotated[
    str | None, typer.Option(metavar="LOSS", help="to compare with; default: the baseline of the study")
]
Tracking = Annotated[
    str | None,
    typer.Option(metavar="URI", help="default: $MLFLOW_TRACKING_URI, else mlflow.db under VSETUNE_HOME"),
]
Run = Annotated[
    str,
    typer.Argument(
        help="STUDY/TRIAL for its latest attempt, STUDY/TRIAL/NUMBER, or STUDY/CELL for the pick that the board shows; "
        "`vsetune study show STUDY --all` lists trials",
        show_default=False,
    ),
]
Split = Annotated[str | None, typer.Option(help="default: the split that the trial was evaluated on")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N")]


def require_known(name: str, names: Iterable[str], kind: str, *, at: str = "") -> str:
    """The name. UsageError with the closest name and all names, if it is not one of them. at: the option."""
    try:
        return known_name(name, names, kind)
    except ValueError as error:
        problem = as_problem(error.args[0])
        raise UsageError(problem.at(at) if at else problem) from error


def tracking_of(uri: str | None) -> TrackingSpec:
    """The store that the option names. ConfigError in one line for an invalid URI."""
    return parse_spec({"uri": uri}, TrackingSpec, where="--tracking-uri")


def found_attempts(*runs: str, finished: bool) -> tuple[Studies, list[RecordedAttempt]]:
    """The studies of the home, and attempts among them, with a line on the trial that a cell stands for; errors as of
    `find_attempt`."""
    from vsetune.study.recorded import find_attempt

    store = Studies()
    found = [find_attempt(store, run, finished=finished) for run in runs]
    for run, attempt in zip(runs, found, strict=True):
        start = attempt.record.start
        if not f"{run}/".startswith(f"{start.study}/{start.trial}/"):
            inform(f"{run}: the pick on the board is {start.study}/{start.trial}")
    return store, found


def load_run(store: Studies, attempt: RecordedAttempt, device: str) -> TrainedTrial:
    """The best network of an attempt; errors as of `load_recorded`."""
    from vsetune.study.recorded import load_recorded
    from vsetune.training.device import choose_device

    with tempfile.TemporaryDirectory() as into, stderr.status("loading the network"):
        return load_recorded(store, attempt, device=choose_device(device), into=Path(into))
