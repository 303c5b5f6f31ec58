"""`vsetune leaderboard`: which loss needs how many epochs to the best M-Recall."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from vsetune.cli import leaderboard_explain, leaderboard_output
from vsetune.cli.leaderboard_output import Baseline, Every, HitShare, StudyNames, read_boards
from vsetune.cli.output import results

if TYPE_CHECKING:
    from vsetune.report.rows import Boards

app = typer.Typer(
    no_args_is_help=True, help="Compare what the studies recorded.",
    epilog="Example: vsetune leaderboard show quickstart",
)
app.command("explain", epilog=leaderboard_explain.EXPLAIN_EXAMPLE)(leaderboard_explain.explain)
app.command("export", epilog=leaderboard_output.EXPORT_EXAMPLE)(leaderboard_output.export)
app.command("serve", epilog=leaderboard_output.SERVE_EXAMPLE)(leaderboard_output.serve)
app.command("table", epilog=leaderboard_output.TABLE_EXAMPLE)(leaderboard_output.table)
app.command("repeat", epilog=leaderboard_explain.REPEAT_EXAMPLE)(leaderboard_explain.repeat)

@app.command(epilog="Example: vsetune leaderboard show quickstart; vsetune leaderboard show flickr8k flickr8k_seeds")
def show(
    study: StudyNames = None,
    every: Every = False,
    baseline: Baseline = None,
    hit_share: HitShare = None,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="everything, curves included, as JSON")] = False,
) -> None:
    """Print the leaderboard of a study, or one for each data set over several: what compares side by side, the rest
    with its reason."""
    from vsetune.report.export import to_json
    from vsetune.report.rows import Leaderboard
    from vsetune.report.terminal import render_table

    shown = read_boards("show", study or [], every=every, baseline=baseline, hit_share=hit_share).shown
    if as_json:
        results.out(to_json(shown), highlight=False)
    elif isinstance(shown, Leaderboard):
        results.print(render_table(shown))
    else:
        _print_several(shown)


def _print_several(found: Boards) -> None:
    from rich.text import Text

    from vsetune.report.table_text import profile_table
    from vsetune.report.terminal import render_table, render_words

    for board in found.boards:
        results.print(render_table(board))
        results.print()
    for profile in found.profiles:
        over_all = profile_table(profile, found.boards[0].baseline)
        if over_all is not None:
            results.print(render_words(over_all))
    if found.notes:
        results.print(Text("\n".join(f"{note}." for note in found.notes), style="dim"))
