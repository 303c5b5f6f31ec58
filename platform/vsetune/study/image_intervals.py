"""Intervals of a recorded board over images too: the best weights of its seeds are scored again, image by image."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from vsetune.board.image_rows import ImageRow, needs_hits, with_images
from vsetune.board.rows import Leaderboard
from vsetune.data.progress import ProgressSink
from vsetune.errors import UsageError
from vsetune.metrics.image_intervals import ImageHits
from vsetune.records.state import trials_of
from vsetune.records.studies import Studies, folder_of_study
from vsetune.study.first_stages import kept_stage
from vsetune.study.recorded import RecordedAttempt, load_recorded, require_best_weights
from vsetune.study.recorded_boards import recorded_board
from vsetune.training.evaluation import rank_split
from vsetune.training.trained import open_first_stage


def image_rows(
    store: Studies, study: str, *, device: torch.device, progress: ProgressSink, baseline: str | None = None
) -> tuple[Leaderboard, list[ImageRow]]:
    """The board of a study, and its rows in the same order, with intervals over images too.

    The best weights of the headline seeds of every row with an interval over seeds or searches are scored on the
    validation split as the trial was validated, in its own arithmetic and by its first stage. baseline: as of
    `recorded_board`. UsageError where no row has such an interval; StaleCheckpoint for weights that are gone or
    damaged; DataError for a data set that is gone or has changed; other errors as of `recorded_board`.
    """
    attempts = store.attempts(study)
    board = recorded_board(store, study, attempts, baseline=baseline)
    wanted = [(row, seed) for _, _, rows in board.groups() for row in needs_hits(rows) for seed in row.headline]
    if not wanted:
        raise UsageError(
            "VSE-S193", "study {study}: no loss has an interval over seeds or searches, so none has one over images "
            "too; need two seeds that finished and did not choose, or three searches: vsetune study confirm {study} "
            "--seeds 3", study=study,
        )
    latest = {trial[-1].start.trial: trial[-1] for trial in trials_of(attempts)}
    needed = [
        RecordedAttempt(latest[seed.trial], folder_of_study(study) / "trials" / seed.trial)
        for _, seed in wanted if not seed.diverged
    ]
    for attempt in needed:  # before any is scored
        with TemporaryDirectory() as into:
            require_best_weights(store, attempt, Path(into))
    progress.stage("scoring images", sum(map(_images, needed)))
    hits = {}
    for attempt in needed:
        hits[attempt.record.start.trial] = _hits(store, attempt, device)
        progress.advance(_images(attempt))
    return board, [each for _, _, rows in board.groups() for each in with_images(rows, hits)]


def _images(attempt: RecordedAttempt) -> int:
    """Number of images in its validations."""
    protocol = attempt.record.start.protocol
    return int(protocol.get("validation_images") or protocol.get("images") or 0)


def _hits(store: Studies, attempt: RecordedAttempt, device: torch.device) -> ImageHits:
    with TemporaryDirectory() as into:
        trained = load_recorded(store, attempt, device=device, into=Path(into))
    trial = trained.trial
    first = open_first_stage(trial, kept_stage(trial, attempt.folder), trained.dataset, device)
    ranks, owner = rank_split(
        trained.network, trained.dataset, trial.data.validation_split, trial=trial, device=device,
        images=trial.evaluation.validation_images, first=first,
    )
    return ImageHits.of_ranks(ranks, owner)
