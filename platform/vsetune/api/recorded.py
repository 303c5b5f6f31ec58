"""Recorded studies and trials of the home, as objects: attempts, curves, boards and trained networks."""

from __future__ import annotations

import html
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vsetune.records.events import ValidationPoint
from vsetune.records.state import Attempt
from vsetune.records.studies import Studies

if TYPE_CHECKING:
    import numpy as np
    import pandas

    from vsetune.api.charts import Figure
    from vsetune.api.retrieval import Embedded, Found, Retrieval
    from vsetune.board.rows import Leaderboard
    from vsetune.study.recorded import RecordedAttempt
    from vsetune.training.trained import TrainedTrial

_ABOUT = ("trial", "cell", "network", "loss", "seed", "phase")


def studies() -> list[str]:
    """Names of the studies that have begun in this home ($VSETUNE_HOME), oldest first. StorageError if it cannot be
    read.

    Example:

        vsetune.studies()    # ['quickstart']
    """
    return [record.name for record in Studies().studies()]


def open_study(name: str) -> RecordedStudy:
    """A study of this home, running or ended. UsageError, with the names that are known, if there is none.

    Example:

        study = vsetune.open_study("quickstart")
        study.board[["loss", "best_m_recall", "epochs_to_best"]]
    """
    return RecordedStudy(name)


class RecordedStudy:
    """A study as its log has it now; every property reads the log again, so a running study can be watched."""

    def __init__(self, name: str) -> None:
        self.name, self._store = name, Studies()
        self._store.record(name)

    @property
    def status(self) -> str:
        """`running`; `finished`; `failed`, where every trial failed; or `killed`: `resume` continues the study."""
        return self._store.status(self.name)

    @property
    def seen(self) -> float:
        """Time of its last event, in seconds since 1970."""
        return self._store.seen(self.name)

    @property
    def config(self) -> dict[str, Any]:
        """Its study file with all defaults, as plain data."""
        return dict(self._store.record(self.name).config)

    @property
    def attempts(self) -> pandas.DataFrame:
        """One row per execution of a trial: `attempt` (its name), `trial`, `cell`, `network`, `loss`, `seed`, `phase`
        (`search` or `confirm`), `number`, `status`, `error`; `best_m_recall` (per cent), `epochs_to_best`,
        `test_m_recall` and the other numbers of its summary; searched settings by dotted name (`loss.margin`)."""
        import pandas

        return pandas.DataFrame([
            {
                "attempt": each.attempt_id, **_about(each), "number": each.start.number, "status": each.status,
                "error": each.error, **each.summary, **each.start.configuration,
            }
            for each in self._store.attempts(self.name)
        ])

    @property
    def curves(self) -> pandas.DataFrame:
        """One row per validation of every attempt: `attempt`, `trial`, `cell`, `network`, `loss`, `seed`, `phase`,
        `epoch`, `m_recall` (per cent, validation split). `trial(...).curve` has all numbers."""
        import pandas

        rows = [
            {"attempt": each.attempt_id, **_about(each), "epoch": epoch, "m_recall": m_recall}
            for each in self._store.attempts(self.name) for epoch, m_recall in each.curve
        ]
        return pandas.DataFrame(rows, columns=["attempt", *_ABOUT, "epoch", "m_recall"])

    @property
    def leaderboard(self) -> Leaderboard:
        """The board as an object: rows with their seeds, comparisons and answers. UsageError without attempts."""
        from vsetune.study.recorded_boards import recorded_board

        return recorded_board(self._store, self.name)

    @property
    def findings(self) -> list[str]:
        """What the data support, a sentence per network: `So far` of `vsetune leaderboard show`. UsageError without
        attempts."""
        from vsetune.board.board_sentences import headline

        return headline(self.leaderboard)

    @property
    def board(self) -> pandas.DataFrame:
        """One row per loss and network with the columns of `vsetune leaderboard export --csv`, in full precision.

        M-Recall and recalls in per cent, times in seconds, `epochs_*` in epochs. UsageError without attempts."""
        import pandas

        from vsetune.board.columns import COLUMNS, columns_of

        found = self.leaderboard
        columns = columns_of("csv", COLUMNS, found.rows)
        return pandas.DataFrame([{column.key: column.of(row) for column in columns} for row in found.rows])

    def image_intervals(self, *, baseline: str | None = None, device: str = "auto") -> pandas.DataFrame:
        """One row per loss and network with its intervals over other validation images too, as `vsetune leaderboard
        images` computes them: `m_recall`, `m_recall_bounds` (over seeds or searches), `m_recall_image_bounds` (over
        these and images), the same of `difference`, and others.

        Scores the best weights of every seed again. baseline: a loss, by default the study's own. device: `auto`,
        `cpu`, `cuda` or `cuda:N`. UsageError where no row has an interval over seeds or searches, StaleCheckpoint where
        weights are gone, DataError where the data set is gone or has changed.
        """
        import pandas

        from vsetune.data.progress import SilentProgress
        from vsetune.study.image_intervals import image_rows
        from vsetune.training.device import choose_device

        _, rows = image_rows(
            self._store, self.name, device=choose_device(device), progress=SilentProgress(), baseline=baseline
        )
        return pandas.DataFrame([row.to_plain() for row in rows])

    @property
    def figure(self) -> Figure:
        """Curves of the losses (see `Figure`), which Jupyter displays; `figure.save("curves.svg")`."""
        from vsetune.api.charts import curve_figure

        return curve_figure(self.leaderboard)

    @property
    def trials(self) -> list[str]:
        """Names of its trials, in the order in which they began."""
        return list(dict.fromkeys(each.start.trial for each in self._store.attempts(self.name)))

    def trial(self, name: str) -> Trial:
        """A trial by its name (`vsepp.lseh-c000-s0`). UsageError, with the closest name, if there is none."""
        return Trial(f"{self.name}/{name}")

    def __repr__(self) -> str:
        return f"RecordedStudy({self.name!r}, {self.status}, {len(self.trials)} trials)"

    def _repr_html_(self) -> str:
        head = f"<b>{html.escape(self.name)}</b>, {self.status}, {len(self.trials)} trials"
        if not self.trials:
            return head
        shown = self.board[["network", "loss", "best_m_recall", "epochs_to_best", "epochs_to_target", "seeds"]]
        return f"{head}{shown.to_html(index=False, float_format=lambda value: f'{value:.4g}')}"


class Queryable(ABC):
    """Encoding and search with a trained network, which is loaded at the first call."""

    name: str
    _retrieval: Retrieval | None = None

    @abstractmethod
    def trained(self) -> TrainedTrial:
        """The network with its best weights (`.network`, a torch module in evaluation mode), its data set and settings.

        StaleCheckpoint if no weights are left, DataError if the data set is gone or has changed.
        """

    def encode_captions(self, captions: Sequence[str]) -> np.ndarray:
        """Vectors of sentences, (m, D) float32, or (m, K, D) with several per sentence.

        UsageError for an empty sentence, and for a network that scores pairs or reads parses.
        """
        return self._opened().encode_captions(captions)

    def encode_images(self, images: Sequence[Any]) -> np.ndarray:
        """Vectors of images, (n, D) float32, or (n, K, D) with several per image.

        images: photographs (a path, a PIL image, or the bytes of a file) or features (regions, width). The extractor of
        the data set makes the features of a photograph. DataError for a photograph that cannot be decoded. UsageError
        for features of another shape, and for a network that scores pairs.
        """
        return self._opened().encode_images(images)

    def search(
        self, sentence: str | None = None, *, image: Any = None, top: int = 5, split: str | None = None
    ) -> Found:
        """The closest images to a sentence, or the closest captions to an image, best first.

        image: an id of the split, a photograph or features; see `encode_images` for the last two. top: number of
        answers. split: to search in; None: the one on which the trial was scored. It is encoded at the first search.
        UsageError for a query that the network cannot read, DataError for a missing split.

        Example:

            trial.search("two dogs run on grass", top=3).table
        """
        return self._opened().search(sentence, image, top=top, split=split)

    def embed(self, split: str | None = None) -> Embedded:
        """All vectors of a split, with ids and texts. UsageError for a network that scores pairs.

        Example:

            found = trial.embed("validation")
            scores = found.images @ found.captions.T
        """
        return self._opened().embed(split)

    def _opened(self) -> Retrieval:
        if self._retrieval is None:
            from vsetune.api.retrieval import Retrieval

            self._retrieval = Retrieval(self.name, self.trained())
        return self._retrieval


class Trial(Queryable):
    """A recorded trial. name: STUDY/TRIAL for its latest attempt, STUDY/TRIAL/NUMBER, or STUDY/CELL for the pick that
    the board shows. device: of the network, `auto`, `cpu`, `cuda` or `cuda:N`. UsageError for an unknown trial.

    Example:

        trial = vsetune.Trial("quickstart/vsepp.info_nce-c000-s0")
        trial.search("two dogs run on grass")
    """

    def __init__(self, name: str, *, device: str = "auto") -> None:
        from vsetune.study.recorded import find_attempt

        self.name, self._device, self._store = name, device, Studies()
        self._attempt: RecordedAttempt = find_attempt(self._store, name, finished=False)

    @property
    def record(self) -> Attempt:
        """The attempt: `status`, `summary` (numbers by name), `error`, `start` (seed, cell, environment)."""
        return self._attempt.record

    @property
    def settings(self) -> dict[str, Any]:
        """All settings of the trial as plain data: `network`, `loss`, `training`, `data`."""
        return dict(self.record.start.resolved)

    @property
    def curve(self) -> pandas.DataFrame:
        """One row per validation: `step`, `epoch`, `m_recall` (per cent), `train_seconds` and every other number."""
        return curve_table(self._store.points(self.record.attempt_id))

    def trained(self) -> TrainedTrial:
        from vsetune.study.recorded import find_attempt, load_recorded
        from vsetune.training.device import choose_device

        attempt = find_attempt(self._store, self.name, finished=True)
        with tempfile.TemporaryDirectory() as into:
            return load_recorded(self._store, attempt, device=choose_device(self._device), into=Path(into))

    def __repr__(self) -> str:
        best = self.record.summary.get("best_m_recall")
        return f"Trial({self.name!r}, {self.record.status}{'' if best is None else f', M-Recall {best:.1f} %'})"


def curve_table(points: Sequence[ValidationPoint]) -> pandas.DataFrame:
    """A row per `ValidationPoint`."""
    import pandas

    return pandas.DataFrame([{**_without_metrics(point), **point.metrics} for point in points])


def _without_metrics(point: ValidationPoint) -> dict[str, Any]:
    return {name: value for name, value in asdict(point).items() if name != "metrics"}


def _about(attempt: Attempt) -> dict[str, Any]:
    return {name: getattr(attempt.start, name) for name in _ABOUT}
