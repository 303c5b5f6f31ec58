"""`vsetune leaderboard`: which loss needs how many epochs to the best M-Recall, and how to train a row again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column

from vsetune.cli import leaderboard_output
from vsetune.cli.leaderboard_output import (
    ColumnKeys,
    Every,
    StudyNames,
    TargetShare,
    columns_named,
    read_boards,
    share_of,
)
from vsetune.cli.options import Baseline, Device, Json, StudyName, flag, place_to_write, require_known
from vsetune.cli.output import (
    BAD_VALUE,
    FittingTable,
    complain,
    inform,
    interruptible,
    print_json,
    print_plainly,
    results,
    stderr,
)
from vsetune.config.spec.yaml_files import dump_yaml
from vsetune.errors import UsageError
from vsetune.home.whole_files import write_text
from vsetune.records.events import StudyRecord
from vsetune.records.state import Attempt
from vsetune.records.studies import Studies

if TYPE_CHECKING:
    from vsetune.board.columns import Column as BoardColumn
    from vsetune.board.image_rows import ImageRow
    from vsetune.board.rows import Boards, Leaderboard, Row

app = typer.Typer(
    no_args_is_help=True, help="Compare what the studies recorded.",
    epilog="Example: vsetune leaderboard show quickstart",
)
app.add_typer(leaderboard_output.app)

RowName = Annotated[
    str,
    typer.Argument(
        metavar="STUDY/CELL", help="a row of a leaderboard, e.g. quickstart/vsepp.info_nce", show_default=False
    ),
]


@app.command(epilog="Example: vsetune leaderboard show quickstart; vsetune leaderboard show flickr8k flickr8k_seeds")
def show(
    study: StudyNames = None,
    every: Every = False,
    baseline: Baseline = None,
    target_share: TargetShare = None,
    columns: ColumnKeys = None,
    as_json: Json = False,
) -> None:
    """Print the leaderboard of a study, or one for each data set over several: what compares side by side, the rest
    with its reason."""
    from vsetune.board.export import to_json
    from vsetune.board.rows import Leaderboard
    from vsetune.board.terminal import render_table

    share = share_of(target_share)
    read = read_boards("show", study or [], every=every, baseline=baseline, target_share=share)
    shown, named = read.shown, columns_named(columns, read)
    if as_json:
        print_plainly(to_json(shown))
    elif isinstance(shown, Leaderboard):
        results.print(render_table(shown, named))
    else:
        _print_several(shown, named)


def _print_several(found: Boards, columns: Sequence[BoardColumn]) -> None:
    from vsetune.board.terminal import render_table

    for board in found.boards:
        results.print(render_table(board, columns))
        results.print()
    if found.notes:
        results.print("\n".join(f"{note}." for note in found.notes), style="dim")


@app.command(epilog="Example: vsetune leaderboard notes quickstart")
def notes(
    study: StudyNames = None,
    every: Every = False,
    baseline: Baseline = None,
    target_share: TargetShare = None,
) -> None:
    """Print what stands behind the numbers of a leaderboard: protocol, tests, definitions, caveats, searches."""
    from vsetune.board.rows import boards_of
    from vsetune.board.terminal import render_notes

    share = share_of(target_share)
    found = boards_of(read_boards("notes", study or [], every=every, baseline=baseline, target_share=share).shown)
    for board in found.boards:
        results.print(render_notes(board))
    if found.notes:
        results.print("\n".join(f"{note}." for note in found.notes), style="dim")


@app.command(epilog="Example: vsetune leaderboard images quickstart --device cpu")
def images(study: StudyName, baseline: Baseline = None, device: Device = "auto", as_json: Json = False) -> None:
    """Print the intervals of a leaderboard over other validation images too, which are resampled with their captions.
    Scores the best weights of every seed again, so it needs them and the data set. What the board claims does not
    change."""
    from vsetune.data.terminal_progress import terminal_progress
    from vsetune.study.image_intervals import image_rows
    from vsetune.training.device import choose_device

    with interruptible("nothing was written"), terminal_progress(stderr) as progress:
        board, rows = image_rows(
            Studies(), study, device=choose_device(device), progress=progress, baseline=baseline
        )
    for problem in (problem for row in rows for problem in row.problems):
        complain("warning", problem)
    if as_json:
        print_json({
            "study": study, "baseline": board.baseline, "about": ABOUT_IMAGES, "rows": [row.to_plain() for row in rows]
        })
        return
    for dataset, network, group in board.groups():
        results.print(_image_table(f"{network} on {dataset}", [row for row in rows if row.row in group]))
    results.print(ABOUT_IMAGES, style="dim")


ABOUT_IMAGES = (
    "95 % intervals. Over seeds, or searches of a tuned loss: where the mean of further ones would lie on these "
    "images. Images too: where it would lie on other images, with their captions, from where these came; not on "
    "another data set. The claims of the board rest on the first and do not change."
)


def _image_table(title: str, rows: Sequence[ImageRow]) -> FittingTable:
    from vsetune.board.wording import NOTHING, fixed, interval, signed

    lines = []
    for each in rows:
        row, found = each.row, each.row.comparison
        gain, gain_bounds = (None, None) if found is None else (found.m_recall, found.m_recall_bounds)
        lines.append((
            row.loss, fixed(row.best_m_recall, 2), f"{len(row.units)} {'searches' if row.has_searches else 'seeds'}",
            *(interval(ends, 2).strip() or NOTHING for ends in (row.m_recall_bounds, each.m_recall_bounds)),
            NOTHING if gain is None or gain_bounds is None else signed(gain, 2),
            *(interval(ends, 2).strip() or NOTHING for ends in (gain_bounds, each.difference_bounds)),
        ))
    headings = (
        "M-Recall", "over", "95 %", "images too", "above baseline", "95 % of that", "of that, images too",
    )
    return FittingTable(["loss", *(Column(heading, justify="right") for heading in headings)], lines, title=title)


@app.command(epilog="Example: vsetune leaderboard repeat quickstart/vsepp.info_nce --output again.yaml")
def repeat(
    row: RowName,
    output: Annotated[Path, place_to_write(help="study file to write", show_default=False)],
    every: Annotated[bool, flag("--all", "all losses of its network")] = False,
    epochs: Annotated[
        float | None, typer.Option(min=0.01, max=1e6, help="train so long instead, e.g. until the baseline is level")
    ] = None,
    baseline: Baseline = None,
) -> None:
    """Write a study file that trains a row and its baseline again: the configurations that the board shows, with their
    seeds, without any search; of a row of several searches, the pick of the best one with the seeds of that search.
    Its name is that of the file. Run it with `vsetune study run`."""
    from vsetune.study.recorded_studies import repeated_study, study_of

    attempts, record, board, found = _found(row, baseline)
    if not found.seeds:
        raise UsageError(
            "VSE-X032", "{row}: has no trial with a usable validation, so there is nothing to repeat.", row=row
        )
    group = next(rows for _, _, rows in board.groups() if found in rows)
    chosen = [each for each in group if each.seeds and (every or each is found or each.is_baseline)]
    spec = repeated_study(study_of(record), chosen, attempts, name=output.stem, epochs=epochs)
    head = [
        f"# {', '.join(each.cell for each in chosen)} of study {record.name} again"
        + (f", for {epochs:g} epochs." if epochs is not None else "."),
        f"# Recorded with {_origin(found, attempts)}.", *(f"# {line}" for line in _of_several_searches(chosen)), "#",
        f"#   vsetune study run {output}", "",
    ]
    write_text(output, "\n".join(head) + dump_yaml(spec.to_plain()))
    for line in _of_several_searches(chosen):
        inform(line)
    inform(f"written: {output.absolute()}; run it with: vsetune study run {output}")


def _of_several_searches(rows: Sequence[Row]) -> list[str]:
    """For every row of several searches, which of them is trained again."""
    return [
        f"{row.cell}: the row is the mean of {len(row.repeats)} searches; this is the pick of the best, search "
        f"{row.pick.repeat}, alone. To repeat the searches, run the file of the study under another name."
        for row in rows if row.has_searches
    ]


def _origin(row: Row, attempts: Sequence[Attempt]) -> str:
    """The code and the data of the trials behind a row."""
    trials = {seed.trial for seed in row.seeds}
    environments = [each.start.environment for each in attempts if each.start.trial in trials]
    code, data = (
        " / ".join(dict.fromkeys(each[key] for each in environments if each.get(key))) or "unknown"
        for key in ("git_revision", "data_fingerprint")
    )
    return f"code {code}, data {data}"


def _found(
    name: str, baseline: str | None
) -> tuple[Sequence[Attempt], StudyRecord, Leaderboard, Row]:
    """Attempts and record of the study, its board, and the row. UsageError for anything that does not exist."""
    from vsetune.board.building import build
    from vsetune.study.recorded_boards import baseline_of

    study, _, cell = name.partition("/")
    if not (study and cell):
        need = "STUDY/CELL, e.g. quickstart/vsepp.info_nce"
        raise UsageError(BAD_VALUE(option="name of a row", got=name or "nothing", need=need))
    store = Studies()
    record = store.record(study)
    attempts = store.attempts(study)
    board = build(attempts, baseline=baseline_of(record, baseline))
    rows = {row.cell: row for row in board.rows}
    return attempts, record, board, rows[require_known(cell, rows, "row", at=name)]
