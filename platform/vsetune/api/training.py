"""One training in this process, of a cell of a study or of keywords; `vsetune train` runs the same."""

from __future__ import annotations

import html
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from vsetune.api.recorded import Queryable, curve_table
from vsetune.api.study import Study, with_plugins
from vsetune.config.spec.base import known_name
from vsetune.config.study.cells import build_trial
from vsetune.config.study.resources import Needs
from vsetune.errors import ConfigError, Problem, UsageError
from vsetune.records.events import ValidationPoint

if TYPE_CHECKING:
    import pandas

    from vsetune.networks.network_base import Network
    from vsetune.study.preparation import PreparedStudy
    from vsetune.training.attempt import TrainingAttempt
    from vsetune.training.trained import TrainedTrial


class Training(Queryable):
    """A finished training. trial: its settings. summary: numbers by name (`best_m_recall` in per cent,
    `epochs_to_best`, `test_m_recall`)."""

    def __init__(self, trained: TrainedTrial, points: list[ValidationPoint], summary: dict[str, float]) -> None:
        self.name, self.trial, self.summary = trained.trial.trial, trained.trial, summary
        self._trained, self._points = trained, points

    @property
    def curve(self) -> pandas.DataFrame:
        """One row per validation: `step`, `epoch`, `m_recall` (per cent), `train_seconds` and every other number."""
        return curve_table(self._points)

    @property
    def network(self) -> Network:
        """The network with its best weights, a torch module in evaluation mode."""
        return self._trained.network

    def trained(self) -> TrainedTrial:
        return self._trained

    def __repr__(self) -> str:
        best, at = self.summary["best_m_recall"], self.summary["epochs_to_best"]
        return f"Training({self.name!r}: M-Recall {best:.2f} % at epoch {at:.2f})"

    def _repr_html_(self) -> str:
        shown = self.curve[["epoch", "m_recall", "train_loss", "pairs_per_second"]]
        table = shown.to_html(index=False, float_format=lambda value: f"{value:.4g}")
        return f"<b>{html.escape(repr(self))}</b>{table}"


def train(
    study: str | Path | Study | None = None, *, cell: str | None = None, network: Any = "vsepp", loss: Any = "lmh",
    data: str | Mapping[str, Any] | None = None, seed: int | None = None, device: str = "auto", resume: bool = False,
    progress: bool = True, **training: Any,
) -> Training:
    """Trains one configuration in this process, without Ray, and returns its curve and network. Nothing is recorded.

    study: a study file, or a `Study`, whose `cell` (`network.loss`, by default the first) is trained at its default
    settings, as by `vsetune train`. Without a study: network, loss: a name, an entry as in a study file
    (`{"name": "lmh", "fixed": {"margin": 0.1}}`), `vsetune.losses.LMH(margin=0.1)`, or a class. data: the folder of a
    data set, or the `data` of a study file. training: keys of `training` in a study file (`epochs`, `batch_size`,
    `learning_rate`). seed: by default the first of the study, or 0. device: `auto`, `cpu`, `cuda`, `cuda:N`.

    A class may stand in a cell of a notebook: a subclass of `vsetune.Loss` or `vsetune.Network` annotated with its
    settings, `spec: MySpec`, a subclass of `vsetune.LossSpec` or `vsetune.NetworkSpec`. It is pickled into a
    plugin folder under VSETUNE_HOME/written by cloudpickle, with everything of the notebook that it uses, and loaded
    from there, so that workers of a study can load it too. A pickle is code: load only your own.

    progress: a bar in the terminal or below the cell. Ctrl-C raises KeyboardInterrupt; resume: goes on from the last
    checkpoint of the same training instead of starting anew. ConfigError, DataError: settings and data do not fit.
    NumericError: the training diverged.

    Example:

        training = vsetune.train(loss="info_nce", data="data/flickr8k", epochs=5, batch_size=128)
        training.curve.plot("epoch", "m_recall")
    """
    from vsetune.study.preparation import prepare_spec
    from vsetune.training.trained import load_trained

    console = Console(stderr=True, quiet=not progress)
    with _names_of_keywords() if study is None else nullcontext():
        asked = _asked(study, network, loss, data, training)
        prepared = prepare_spec(asked.spec, console, where=asked.where)
    attempt = open_training(prepared, cell=cell, seed=seed, device=device, fresh=not resume)
    total = attempt.trial.training.epochs
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("epoch {task.completed:.4g} of {task.total:g}"),
        TimeRemainingColumn(), console=console,
    )
    with bar:
        task = bar.add_task(attempt.trial.trial, total=total)
        while not attempt.is_finished:
            point = attempt.advance()
            words = f"{attempt.trial.trial} M-Recall {point.m_recall:.2f} %"
            bar.update(task, completed=point.epoch, description=words)
        summary = attempt.finish()
    # loaded now: the next training of this name replaces the file
    trained = load_trained(
        attempt.trial, attempt.best_path, device=attempt.device, data_fingerprint=None, where=attempt.trial.trial
    )
    return Training(trained, attempt.history, summary)


def open_training(
    prepared: PreparedStudy, *, cell: str | None, seed: int | None, device: str, fresh: bool
) -> TrainingAttempt:
    """The training of a cell at its defaults, in the study's folder `train`. cell: None for the first. seed: None for
    the first of the study. fresh: what an earlier training left is removed; else it is continued.

    UsageError for an unknown cell, StaleCheckpoint for an earlier training with other settings."""
    from vsetune.study.first_stages import kept_stage
    from vsetune.study.study_home import TRAIN_FOLDER
    from vsetune.training.attempt import TrainingAttempt

    cells = {each.name: each for each in prepared.cells}
    try:
        chosen = cells[known_name(cell, cells, "cell")] if cell else prepared.cells[0]
    except ValueError as error:
        raise UsageError(*error.args) from error
    used_seed = chosen.seeds[0] if seed is None else seed
    if not isinstance(used_seed, int) or used_seed < 0:
        raise UsageError("VSE-A010", "seed: got {got!r}, need a whole number from 0 on", got=used_seed)
    trial = build_trial(
        prepared.spec, chosen, chosen.defaults(), trial=f"{chosen.name}-defaults-s{used_seed}", seed=used_seed
    )
    folder = prepared.folder / TRAIN_FOLDER / trial.trial
    if fresh:
        shutil.rmtree(folder, ignore_errors=True)
    return TrainingAttempt(
        trial, folder, device=device, threads=prepared.spec.resources.cpus, first_stage=kept_stage(trial, folder),
        reading=prepared.spec.resources.reading_of(Needs(gpus=1.0)),
    )


def _asked(
    study: str | Path | Study | None, network: Any, loss: Any, data: str | Mapping[str, Any] | None,
    training: Mapping[str, Any],
) -> Study:
    """The study that is trained; of keywords one with a single cell, whose settings are fixed."""
    if study is not None:
        for key, given in (("data", data), *training.items()):
            if given is not None:
                raise UsageError(
                    "VSE-A007", "train: got a study and {key}, need the study file, or keywords alone", key=key
                )
        return study if isinstance(study, Study) else Study.from_file(study)
    if data is None:
        raise UsageError("VSE-A008", "train: got no data set, need `data=`, its folder, or a study file")
    content = with_plugins({
        "study": _KEYWORDS, "data": {"path": str(data)} if isinstance(data, str | Path) else data,
        "networks": [network], "losses": [loss], "training": dict(training),
    })
    (entry,) = content["losses"]
    return Study(content, baseline=entry.get("label") or entry.get("name"))


_KEYWORDS = "train"
"""Name of the study that keywords of `train` make."""


@contextmanager
def _names_of_keywords() -> Iterator[None]:
    """A ConfigError on the study of keywords names the keywords: `train: loss.name` for `losses[0].name`, and
    `train: epochs` for `training.epochs`. Its baseline is not the caller's, so a problem of it is left out."""
    try:
        yield
    except ConfigError as error:
        begin = f"study {_KEYWORDS}: "
        problems = [each for each in error.problems if not each.startswith(f"{begin}baseline: ")]
        raise type(error)([_named(each, begin) for each in problems or error.problems]) from error


def _named(problem: str, begin: str) -> str:
    def renamed(text: str) -> str:
        text = re.sub(r"\bnetworks\[0\]", "network", re.sub(r"\blosses\[0\]", "loss", text))
        return re.sub(f"^{re.escape(begin)}(training\\.)?", f"{_KEYWORDS}: ", text)

    if not isinstance(problem, Problem):
        return renamed(problem)
    hint = str(problem.fields.get("hint"))
    if problem.startswith(f"{begin}training.") and hint.startswith("it belongs at"):  # a key of a study, not of `train`
        need = "need network, loss, data or a key of `training` of a study file"
        problem = problem.worded(problem.replace(hint, need))
    fields = {name: renamed(value) if isinstance(value, str) else value for name, value in problem.fields.items()}
    return Problem(renamed(problem), problem.code, fields)
