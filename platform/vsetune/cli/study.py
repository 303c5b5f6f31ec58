"""`vsetune study`: check a study file, run it, resume it; see and stop those that run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table

from vsetune.cli import study_after, study_plan, study_simulate, study_watch
from vsetune.cli.components import searched_text
from vsetune.cli.output import complain, counted, interruptible, messages, print_json, results, say
from vsetune.cli.study_report import report
from vsetune.config.spec.loading import dump_yaml
from vsetune.config.study.cells import Cell, resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import UsageError
from vsetune.storage.addresses import shown_plain
from vsetune.storage.paths import under_home
from vsetune.study.study_file import load_study

app = typer.Typer(
    no_args_is_help=True, help="Check a study file, run it, go on with it; see and stop studies that run.",
    epilog="Example: vsetune study run studies/quickstart.yaml",
)
app.command("list", epilog=study_watch.LIST_EXAMPLE)(study_watch.list_studies)
app.command("show", epilog=study_watch.SHOW_EXAMPLE)(study_watch.show_study)
app.command("stop", epilog=study_watch.STOP_EXAMPLE)(study_watch.stop_study)
app.command("confirm", epilog=study_after.CONFIRM_EXAMPLE)(study_after.confirm_study)
app.command("explain", epilog=study_after.EXPLAIN_EXAMPLE)(study_after.explain_study)
app.command("plan", epilog=study_plan.PLAN_EXAMPLE)(study_plan.plan_study)
app.command("simulate", epilog=study_simulate.SIMULATE_EXAMPLE)(study_simulate.simulate_study)

StudyFile = Annotated[Path, typer.Argument(help="study file (YAML)", show_default=False)]


@app.command(epilog="Example: vsetune study validate studies/quickstart.yaml")
def validate(
    file: StudyFile,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="the resolved cells as JSON")] = False,
) -> None:
    """Check a study file without running anything: every problem at once, then its cells."""
    from vsetune.search.drawing import gaps_of
    from vsetune.study.cell_budget import epochs_of_cell
    from vsetune.study.node_types import known_node_types, unused_gpus
    from vsetune.study.observed import promised_trials
    from vsetune.study.planning.trial_places import this_machine

    study = load_study(file)
    cells = resolve_cells(study, where=str(file))
    checked = _check_data(study, cells, file)
    if as_json:
        print_json([_plain_cell(cell) for cell in cells])
        return
    table = Table(Column("cell", overflow="fold"), "epochs", Column("searched", overflow="fold"), title_justify="left")
    table.title = f"{study.study}: {counted(len(cells), 'cell', 'cells')}"
    for cell in cells:
        table.add_row(cell.name, f"{epochs_of_cell(study, cell):g}", searched_text(cell))
    results.print(table)
    for cell in cells:
        if gaps := gaps_of(study.search, cell):
            complain("warning", gaps)
    needs = [study.resources.needs_of(cell.network_name, cell.loss_name) for cell in cells]
    for line in unused_gpus(needs, [kind.resources for kind in known_node_types() or [this_machine()]]):
        complain("warning", line)
    longest = max(cell.training["epochs"] for cell in cells)
    say(f"{file}: valid; {promised_trials(study, cells)} trials of at most {longest:g} epochs{checked}")


def _check_data(study: StudySpec, cells: list[Cell], file: Path) -> str:
    """Check that every cell fits the data set, if that exists already. Prints a line where it does not."""
    from vsetune.data.stored.dataset import Dataset
    from vsetune.data.stored.manifest import MANIFEST_FILE
    from vsetune.data.stored.storage import exists
    from vsetune.storage.addresses import is_remote, join
    from vsetune.study.first_stages import check_first_stage
    from vsetune.study.fitting import require_fit
    from vsetune.study.preparation import require_scenes, stage_search

    path = under_home(study.data.path)
    if study.data.scenes is not None:
        require_scenes(study.model_copy(update={"data": study.data.model_copy(update={"path": path})}), where=str(file))
    is_made = study.data.scenes is None and is_remote(path)  # scenes are made when the study runs
    if not is_made and not exists(join(path, MANIFEST_FILE)):
        return f"; the data set {path} is not there yet, so it was not looked at"
    dataset = Dataset.open(path)
    require_fit(study, cells, dataset, where=str(file))
    check_first_stage(stage_search(study, dataset, where=str(file)))
    return ""


@app.command(epilog="Example: vsetune study schema > study.schema.json")
def schema() -> None:
    """Print the JSON Schema of study files, for editors."""
    results.out(json.dumps(StudySpec.model_json_schema(), indent=2), highlight=False)


@app.command(epilog="Example: vsetune study run studies/quickstart.yaml --resume")
def run(
    file: StudyFile,
    resume: Annotated[
        bool, typer.Option("--resume", metavar="", help="go on where an earlier run of this study ended")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", metavar="", help="with --resume: run failed trials again")
    ] = False,
    changed_plugins: Annotated[
        bool, typer.Option(
            "--changed-plugins", metavar="", help="with --resume: run cells that have not begun with plugins that have "
            "changed; those that have begun stay as they are",
        )
    ] = False,
    address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Ray cluster; default: RAY_ADDRESS, or this machine")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", metavar="", help="print the resolved study and stop")] = False,
) -> None:
    """Run every trial of a study. Ctrl-C leaves a study that --resume continues.

    Exit codes: 0 all trials ended as they should, 4 they did but records wait for the tracking store (vsetune tracking
    flush), 3 some failed for good, 1 all failed, 130 interrupted (--resume goes on), 2 the input is wrong.
    """
    if changed_plugins and not resume:
        raise UsageError("study run: --changed-plugins goes on with a study that has begun; add --resume")
    if dry_run:
        study = load_study(file)
        resolve_cells(study, where=str(file))
        results.out(dump_yaml(shown_plain(study.to_plain())), highlight=False)
        return
    from vsetune.study.preparation import prepare_study
    from vsetune.study.run import run_study
    from vsetune.study.stopping import sigterm_like_ctrl_c

    going_on = f"nothing finished is lost, go on with: vsetune study run {file} --resume"
    with interruptible(going_on), sigterm_like_ctrl_c():
        prepared = prepare_study(file, messages)
        outcome = run_study(
            prepared, resume=resume, retry_failed=retry_failed, address=address, console=messages,
            changed_plugins=changed_plugins,
        )
    report(prepared, outcome, go_on=f"vsetune study run {file} --resume", file=str(file))


def _plain_cell(cell: Cell) -> dict[str, object]:
    return {
        "cell": cell.name, "network": dict(cell.network), "loss": dict(cell.loss), "training": dict(cell.training),
        "search": {name: domain.to_plain() for name, domain in cell.domains.items()},
    }
