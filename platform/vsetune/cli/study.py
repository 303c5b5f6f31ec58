"""`vsetune study`: check a study file, run it, resume it, confirm its winners, explain its search."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.table import Column, Table

from vsetune.cli import study_plan, study_watch
from vsetune.cli.options import Cluster, Json, StudyFile, StudyName, StudyOrFile, flag, place_to_write
from vsetune.cli.output import (
    FittingTable,
    coded,
    complain,
    counted,
    inform,
    interruptible,
    print_json,
    results,
    searched_text,
    stderr,
)
from vsetune.config.spec.loading import dump_yaml
from vsetune.config.study.cells import Cell, resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import Problem, UsageError, told_once
from vsetune.home.addresses import is_remote, join, shown_plain
from vsetune.home.home_files import keep_in_home
from vsetune.home.paths import home, under_home
from vsetune.home.whole_files import write_text
from vsetune.records.studies import Studies
from vsetune.study.places import mlflow_ui, tracking_uri
from vsetune.study.stopping import sigterm_like_ctrl_c
from vsetune.study.study_file import load_study

if TYPE_CHECKING:
    from vsetune.study.explaining import ExplainedCell
    from vsetune.study.preparation import PreparedStudy
    from vsetune.study.run import StudyOutcome, Trouble


app = typer.Typer(
    no_args_is_help=True, help="Check a study file, run it, go on with it; see and stop studies that run.",
    epilog="Example: vsetune study run studies/quickstart.yaml",
)
app.add_typer(study_watch.app)
app.add_typer(study_plan.app)


@app.command("confirm", epilog="Example: vsetune study confirm quickstart --seeds 5")
def confirm_study(
    study: StudyOrFile,
    seeds: Annotated[
        int, typer.Option(min=1, max=1000, help="of every configuration; more of them later add to these")
    ] = 3,
    address: Cluster = None,
) -> None:
    """Train the best configurations of a study again with further seeds: the winner, the runner-up and the papers'
    settings of every cell, to the last epoch. A board can then test differences over these seeds.

    The search of the study must be over. All cells get the same seeds, none of which has searched: those that the file
    lists after the first, then the smallest that it does not list. Finished trials are not run again, so the same
    command goes on after an interruption. The numbers of the leaderboard then come from these seeds; runner-up and
    papers' settings stand in its notes.
    """
    from vsetune.study.confirmations import Confirming
    from vsetune.study.run import run_study

    again = f"vsetune study confirm {study} --seeds {seeds}"
    with interruptible(f"nothing finished is lost, go on with: {again}"), sigterm_like_ctrl_c():
        prepared = _prepared(study)
        outcome = run_study(
            prepared, resume=True, retry_failed=False, address=address, console=stderr,
            confirming=Confirming(seeds, contenders=True),
        )
    _report(prepared, outcome, go_on=again)


def _prepared(study: str) -> PreparedStudy:
    """UsageError for what is neither a file nor a study that has begun."""
    from vsetune.study.preparation import prepare_spec
    from vsetune.study.recorded_studies import study_of

    given = load_study(Path(study)) if Path(study).is_file() else None
    if given is None and Path(study).suffix in (".yaml", ".yml"):
        raise UsageError(
            "VSE-X011", "{place}: no such file; name a study file, or a study that has begun.", place=study
        )
    record = Studies().record(study if given is None else given.study)
    spec: StudySpec = study_of(record) if given is None else given
    return prepare_spec(spec, stderr, where=study if given is not None else f"study {study}")


@app.command("explain", epilog="Example: vsetune study explain quickstart --output search.html")
def explain_study(
    study: StudyName,
    output: Annotated[Path | None, place_to_write(help="page to write; default: under VSETUNE_HOME/searches")] = None,
) -> None:
    """Show for every cell how much each searched setting matters, with M-Recall over its range; a web page has the
    same with a chart for each setting. The study may still run."""
    from vsetune.study.explaining import explain, to_html

    studies = Studies()
    attempts = studies.attempts(study)
    if not attempts:
        raise UsageError(
            "VSE-X030", "{studies}: no attempts yet; start a study, or wait for its first validation.",
            studies=f"study {study}",
        )
    with stderr.status("weighing the settings"):
        explained = explain(studies.record(study), attempts)
        page = to_html(explained)
    if explained.remark:
        inform(explained.remark)
    for cell in explained.cells:
        inform(f"{cell.name}. {cell.finding}")
        if cell.trials and cell.domains:
            stderr.print(_importances(cell))
        if cell.trials and cell.importances.remark:
            inform(cell.importances.remark)
    path = output or home() / "searches" / f"{study}.html"
    write_text(path, page)
    keep_in_home(path)
    results.out(str(path.absolute()))


def _importances(cell: ExplainedCell) -> FittingTable:
    """A row for each searched setting: its importance, and M-Recall over its range."""
    from vsetune.study.explaining import sketch

    shares = cell.importances.shares
    return FittingTable(
        ["setting", Column("importance", justify="right"), "best M-Recall (x: failed)"],
        [
            [name, f"{100 * shares[name]:.0f} %" if name in shares else "?", sketch(cell, name)]
            for name in cell.settings
        ],
    )


@app.command(epilog="Example: vsetune study validate studies/quickstart.yaml")
def validate(
    file: StudyFile,
    as_json: Json = False,
) -> None:
    """Check a study file without running anything: every problem at once, then its cells."""
    from vsetune.search.space_gaps import gaps_of
    from vsetune.study.cell_budget import epochs_of_cell
    from vsetune.study.node_types import known_node_types, this_machine, unused_gpus
    from vsetune.study.observed import promised_trials

    study = load_study(file)
    cells = resolve_cells(study, where=str(file))
    checked = _check_data(study, cells, file)
    if as_json:
        print_json([_plain_cell(cell) for cell in cells])
        return
    columns = (Column("cell", overflow="fold"), "epochs per\nsearch", Column("searched", overflow="fold"))
    table = Table(*columns, title_justify="left")
    searches = f", each searched {study.search.repeats} times" if study.search.repeats > 1 else ""
    table.title = f"{study.study}: {counted(len(cells), 'cell', 'cells')}{searches}"
    for cell in cells:
        table.add_row(cell.name, f"{epochs_of_cell(study, cell):g}", searched_text(cell))
    results.print(table)
    for line in told_once([gaps for cell in cells if (gaps := gaps_of(study.search, cell))]):
        complain("warning", line)
    needs = [study.resources.needs_of(cell.network_name, cell.loss_name) for cell in cells]
    for line in unused_gpus(needs, [kind.resources for kind in known_node_types() or [this_machine()]]):
        complain("warning", line)
    longest = max(cell.training["epochs"] for cell in cells)
    inform(f"{file}: valid; {promised_trials(study, cells)} trials of at most {longest:g} epochs{checked}")


def _check_data(study: StudySpec, cells: list[Cell], file: Path) -> str:
    """Check that every cell fits the data set, if that exists already. Prints a line where it does not."""
    from vsetune.data.stored.dataset import Dataset
    from vsetune.data.stored.manifest import MANIFEST_FILE
    from vsetune.data.stored.storage import exists
    from vsetune.study.fitting import require_fit, require_scenes

    path = under_home(study.data.path)
    if study.data.scenes is not None:
        require_scenes(study.model_copy(update={"data": study.data.model_copy(update={"path": path})}), where=str(file))
    is_made_by_study = study.data.scenes is not None or study.data.index is not None
    is_made = is_remote(path) and not is_made_by_study
    if not is_made and not exists(join(path, MANIFEST_FILE)):
        made = "the study makes it" if is_made_by_study else "make it first with `vsetune data ingest`"
        return f"; the data set {path} is not there yet: {made}"
    dataset = Dataset.open(path)
    require_fit(study, cells, dataset, where=str(file))
    if study.evaluation.rerank is not None:
        from vsetune.study.first_stages import check_first_stage
        from vsetune.study.preparation import stage_search

        check_first_stage(stage_search(study, dataset, where=str(file)))
    return ""


@app.command(epilog="Example: vsetune study schema > study.schema.json")
def schema() -> None:
    """Print the JSON Schema of study files, for editors."""
    print_json(StudySpec.model_json_schema())


@app.command(epilog="Example: vsetune study run studies/quickstart.yaml --resume")
def run(
    file: StudyFile,
    resume: Annotated[bool, flag("--resume", "go on where an earlier run of this study ended")] = False,
    retry_failed: Annotated[bool, flag("--retry-failed", "with --resume: run failed trials again")] = False,
    address: Cluster = None,
    dry_run: Annotated[bool, flag("--dry-run", "print the resolved study and stop")] = False,
) -> None:
    """Run every trial of a study. Ctrl-C leaves a study that --resume continues.

    Exit codes: 0 all trials ended as they should, 4 they did but records wait for the tracking store (vsetune tracking
    flush), 3 some failed for good, 1 all failed, 130 interrupted (--resume goes on), 2 the input is wrong.
    """
    if dry_run:
        study = load_study(file)
        resolve_cells(study, where=str(file))
        results.out(dump_yaml(shown_plain(study.to_plain())))
        return
    again = f"vsetune study run {file} --resume"
    run_file(file, again=again, resume=resume, retry_failed=retry_failed, address=address)


def run_file(
    file: Path, *, again: str, resume: bool, retry_failed: bool = False, address: str | None = None
) -> NoReturn:
    """Run the study of a file, print its leaderboard, and exit as `vsetune study run` does. again: the command that
    continues it."""
    from vsetune.study.preparation import prepare_study
    from vsetune.study.run import run_study

    with interruptible(f"nothing finished is lost, go on with: {again}"), sigterm_like_ctrl_c():
        prepared = prepare_study(file, stderr)
        outcome = run_study(prepared, resume=resume, retry_failed=retry_failed, address=address, console=stderr)
    _report(prepared, outcome, go_on=again)


def _plain_cell(cell: Cell) -> dict[str, object]:
    return {
        "cell": cell.name, "network": dict(cell.network), "loss": dict(cell.loss), "training": dict(cell.training),
        "search": {name: domain.to_plain() for name, domain in cell.domains.items()},
    }


def _report(prepared: PreparedStudy, outcome: StudyOutcome, *, go_on: str) -> NoReturn:
    """Print the leaderboard to stdout, events and places to look to stderr. Exits with the exit code.

    go_on: the command that continues an interrupted study.
    """
    from vsetune.board.shown_runs import networks_of_means
    from vsetune.board.terminal import render_table

    if outcome.board is not None:
        results.print(render_table(outcome.board))
    if outcome.remark:
        what = "no leaderboard" if outcome.board is None else "leaderboard not whole on disk"
        inform(f"{what}: {coded(outcome.remark)}")
    if outcome.troubles:
        stderr.print(_table_of(outcome.troubles))
    counts = ", ".join(f"{count} {status}" for status, count in sorted(outcome.counts.items()))
    lines = [f"{prepared.spec.study}: {counts}"]
    if outcome.page is not None:
        lines.append(f"page:      {outcome.page}")
    boards = [] if outcome.board is None else [outcome.board]
    networks = networks_of_means(boards, prepared.spec.study)
    lines += in_mlflow(tracking_uri(prepared.spec.tracking), outcome.experiment, networks)
    inform("\n".join(lines))
    if outcome.undelivered:
        complain("warning", Problem.of(
            "VSE-X035", "{count} events are not in MLflow yet ({reason}); export them with: vsetune tracking flush "
            "{study}", count=outcome.undelivered, reason=coded(outcome.outage), study=prepared.spec.study,
        ))
    if outcome.was_interrupted:
        why = f" by {outcome.stopped_by}" if outcome.stopped_by else ""
        inform(f"interrupted{why}; nothing finished is lost, go on with: {go_on}")
    raise typer.Exit(_EXIT_CODES[outcome.ending] or (_UNDELIVERED if outcome.undelivered else 0))


def in_mlflow(uri: str | None, experiment: str | None, networks: Sequence[str]) -> list[str]:
    """Where in MLflow's UI the charts of the study are, with the command that serves it where no server has it.
    networks: those with mean curves; the charts of a single one are shown."""
    from vsetune.records.mlflow_descriptions import charts_link

    if experiment is None:
        return []
    server = mlflow_ui(None, uri)
    link = charts_link(experiment, networks[0] if len(networks) == 1 else "")
    start = [] if server is not None else ["MLflow:    vsetune ui"]
    return [*start, f"charts:    {server or 'http://127.0.0.1:5000'}/{link}"]


_EXIT_CODES = {"finished": 0, "failed": 1, "partly failed": 3, "interrupted": 130}
_UNDELIVERED = 4
"""Exit code of a study that finished while its tracking store has not taken all records."""


def _table_of(troubles: Sequence[Trouble]) -> Table:
    """Trials that failed or are open, with the first line of the reason."""
    columns = (Column("trial", overflow="fold"), "is", Column("because", overflow="fold"))
    table = Table(*columns, title="not finished", title_justify="left")
    for trouble in troubles[:_MOST_TROUBLES]:
        table.add_row(trouble.trial, "open" if trouble.is_open else "failed", trouble.reason[:_LONGEST_REASON])
    if len(troubles) > _MOST_TROUBLES:
        table.add_row(f"and {len(troubles) - _MOST_TROUBLES} more", "", "vsetune trial show STUDY/TRIAL shows each")
    return table


_MOST_TROUBLES, _LONGEST_REASON = 20, 800
