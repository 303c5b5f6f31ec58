"""Boards requested by a command: of one study, of several, or of all in a store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from vsetune.errors import UsageError

if TYPE_CHECKING:
    from vsetune.records.events import AttemptRecord, StudyRecord
    from vsetune.records.studies import Studies
    from vsetune.report.many_studies import StudyAttempts
    from vsetune.report.page import Shown

StudyNames = Annotated[list[str] | None, typer.Argument(help="name of a study, or of several", show_default=False)]
Every = Annotated[bool, typer.Option("--all", metavar="", help="over every study in the store")]
HitShare = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE", help="share of the seeds that must reach the target in performance profiles, e.g. 0.75; "
        "default: 0.5", show_default=False,
    ),
]
Baseline = Annotated[str | None, typer.Option(metavar="LOSS", help="to compare with; default: the study's baseline")]


@dataclass(frozen=True)
class ReadBoards:
    """shown: the board of the one study that was named, else those of several by data set. name: of a file for them."""

    store: Studies
    shown: Shown
    attempts: Sequence[AttemptRecord]
    name: str


def read_boards(
    command: str, names: Sequence[str], *, every: bool, baseline: str | None, hit_share: float | None,
) -> ReadBoards:
    """command: for the message. UsageError for neither names nor `every`, or both, a study that the store does not
    have, a baseline that was not run, and an invalid share."""

    from vsetune.records.studies import Studies

    share = share_of(hit_share)
    if every == bool(names):
        raise UsageError(f"leaderboard {command}: need the names of studies, or --all without names")
    store = Studies()
    names = list(dict.fromkeys(names))
    if len(names) == 1:
        return _of_one(store, names[0], baseline, share)
    return _of_several(store, names, baseline, share)


def share_of(given: float | None) -> float:
    """A share as `HitShare` gives it. UsageError for an invalid share of the seeds."""
    from vsetune.metrics.performance_profiles import HIT_SHARE

    if given is None:
        return HIT_SHARE
    if not 0 < given <= 1:
        raise UsageError(f"--hit-share: got {given:g}, need a share above 0, at most 1: 0.75 for three of four seeds")
    return given


def _of_one(store: Studies, study: str, baseline: str | None, hit_share: float) -> ReadBoards:
    from vsetune.report.building import build
    from vsetune.study.range_ends import board_with_ends

    attempts = store.attempts(study)
    if not attempts:
        raise UsageError(f"study {study}: has no attempts yet; start it, or wait for its first validation")
    known = {record.name: record for record in store.studies()}
    board = build(attempts, baseline=baseline or str(known[study].config["baseline"]), hit_share=hit_share)
    return ReadBoards(store, board_with_ends(board, [known[study]]), attempts, study)


def _of_several(
    store: Studies, names: Sequence[str], baseline: str | None, hit_share: float
) -> ReadBoards:
    from vsetune.report.many_studies import build_many
    from vsetune.study.range_ends import board_with_ends

    records = named_records(store, names)
    studies = read_studies(store, records)
    losses = {attempt.start.loss for study in studies for attempt in study.attempts}
    if baseline is not None and baseline not in losses:
        raise UsageError(f"leaderboard: baseline {baseline} was not run; name one of {', '.join(sorted(losses))}")
    attempts = [attempt for study in studies for attempt in study.attempts]
    name = f"{names[0]}_and_{len(names) - 1}_more" if names else "all_studies"
    found = build_many(studies, baseline=baseline, hit_share=hit_share)
    shown = replace(found, boards=tuple(board_with_ends(board, records) for board in found.boards))
    return ReadBoards(store, shown, attempts, name)


def named_records(store: Studies, names: Sequence[str]) -> list[StudyRecord]:
    """Boards of these studies in this order, or of all in the store. UsageError for one that the store does not
    have."""
    from vsetune.records.studies import unknown_study

    known = {record.name: record for record in store.studies()}
    for name in names:
        if name not in known:
            raise unknown_study(name, list(known))
    return [known[name] for name in dict.fromkeys(names)] or list(known.values())


def read_studies(store: Studies, records: Sequence[StudyRecord]) -> list[StudyAttempts]:
    """The attempts of these studies in this order. UsageError where none has any."""
    from vsetune.report.many_studies import StudyAttempts

    studies = [
        StudyAttempts(record.name, str(record.config.get("baseline", "")), store.attempts(record.name))
        for record in records
    ]
    if not any(study.attempts for study in studies):
        raise UsageError(
            f"leaderboard: no attempts yet in {', '.join(record.name for record in records) or 'the store'}; "
            "start a study, or wait for its first validation"
        )
    return studies
