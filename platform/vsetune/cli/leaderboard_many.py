"""`vsetune leaderboard show A B C` and `--all`: one board each data set over several studies."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from vsetune.cli.output import results
from vsetune.cli.tracking_option import tracking_of
from vsetune.errors import UsageError

if TYPE_CHECKING:
    from vsetune.leaderboard.many_studies import ManyBoards, StudyAttempts


def show_many(names: Sequence[str], baseline: str | None, tracking_uri: str | None, *, as_json: bool) -> None:
    """Print the boards of these studies, or of all in the store where none is named."""
    from rich.text import Text

    from vsetune.leaderboard.terminal import render_table, render_words
    from vsetune.leaderboard.tuning_table import profile_table

    found = read_boards(names, baseline, tracking_uri)
    if as_json:
        results.out(boards_to_json(found), highlight=False)
        return
    for board in found.boards:
        results.print(render_table(board))
        results.print()
    over_all = profile_table(found.profile, found.boards[0].baseline)
    if over_all is not None:
        results.print(render_words(over_all))
    if found.notes:
        results.print(Text("\n".join(f"{note}." for note in found.notes), style="dim"))


def read_boards(names: Sequence[str], baseline: str | None, tracking_uri: str | None) -> ManyBoards:
    """UsageError for a study that the store does not have, and for a baseline that none of them ran."""
    from vsetune.jobs.range_ends import board_with_ends
    from vsetune.jobs.store_address import existing_store
    from vsetune.leaderboard.many_studies import build_many

    studies = read_studies(names, tracking_uri)
    losses = {attempt.start.loss for study in studies for attempt in study.attempts}
    if baseline is not None and baseline not in losses:
        raise UsageError(f"leaderboard: baseline {baseline} was not run; name one of {', '.join(sorted(losses))}")
    found, records = build_many(studies, baseline=baseline), existing_store(tracking_of(tracking_uri)).studies()
    return replace(found, boards=tuple(board_with_ends(board, records) for board in found.boards))


def read_studies(names: Sequence[str], tracking_uri: str | None) -> list[StudyAttempts]:
    """The attempts of these studies in this order, or of all in the store. UsageError for one that it does not have,
    and where none has any attempt."""
    from vsetune.jobs.preparation import existing_store
    from vsetune.jobs.recorded_studies import record_of
    from vsetune.leaderboard.many_studies import StudyAttempts

    store = existing_store(tracking_of(tracking_uri))
    records = [record_of(store, name) for name in dict.fromkeys(names)] or list(store.studies())
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


def boards_to_json(found: ManyBoards) -> str:
    """`boards`, each as `leaderboard show STUDY --json` has it, `notes`, and `profile` over all data sets."""
    from vsetune.leaderboard.export import to_json

    profile = None if found.profile is None else asdict(found.profile)
    for loss in profile["losses"] if profile else []:
        loss["factors"] = [factor if math.isfinite(factor) else None for factor in loss["factors"]]
    boards = [json.loads(to_json(board)) for board in found.boards]
    plain = {"boards": boards, "notes": list(found.notes), "profile": profile}
    return json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False)
