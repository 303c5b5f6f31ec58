"""`vsetune tracking`: MLflow brought up to date; studies moved, and examined for damage."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vsetune.cli.options import Json, StudyName, StudyOrFile, Tracking, place_to_write, tracking_of
from vsetune.cli.output import BAD_VALUE, coded, complain, counted, inform, interruptible, print_json, results, stderr
from vsetune.errors import Problem, UsageError
from vsetune.records.studies import Studies, unknown_study
from vsetune.study.places import tracking_uri as store_uri
from vsetune.study.study_file import load_study

app = typer.Typer(
    no_args_is_help=True, help="Bring MLflow up to date, move studies, find damage.",
    epilog="Example: vsetune tracking flush quickstart",
)
_PATIENCE_S = 20.0


@app.command(epilog="Example: vsetune tracking flush quickstart")
def flush(
    study: StudyOrFile,
    tracking_uri: Tracking = None,
) -> None:
    """Export to MLflow what a study recorded while MLflow was away. Resuming the study does the same. Exit code 0 if
    nothing is left, else 1."""
    from vsetune.study.study_records import export_records

    given = load_study(Path(study)) if Path(study).is_file() else None
    name = study if given is None else given.study
    tracking = tracking_of(tracking_uri) if tracking_uri else None if given is None else given.tracking
    with interruptible("the same command goes on"), stderr.status("exporting"):
        left, why, experiment = export_records(name, tracking, patience_s=_PATIENCE_S)
    where = "" if experiment == name else f" (MLflow experiment {experiment})"
    results.out(f"{name}: {left} events left{where}" + (f": {coded(why)}" if left else ""))
    if left:
        raise typer.Exit(1)


@app.command(epilog="Example: vsetune tracking export quickstart --to quickstart.zip")
def export(
    study: StudyName,
    to: Annotated[Path, place_to_write("--to", help="a .zip file, or a new folder", show_default=False)],
) -> None:
    """Write a study into one file or folder, for `tracking import`: its log, file, boards, best weights and galleries,
    as far as they are on this machine. Not written: checkpoints of trials that have not finished, own components."""
    from vsetune.records.moved_study import export_study

    studies = Studies()
    studies.record(study)
    with interruptible("nothing was written"), stderr.status("exporting"):
        files = export_study(study, to)
    results.out(f"{study}: {files} files in {to.absolute()}")
    if studies.status(study) == "running":
        complain("warning", Problem.of(
            "VSE-X036", "study {study}: is running, and the export has it as it was; export it again when it has "
            "ended.", study=study,
        ))


@app.command("import", epilog="Example: vsetune tracking import quickstart.zip")
def import_(
    source: Annotated[str, typer.Argument(
        metavar="FILE_OR_STUDY", help="what `tracking export` wrote; with --tracking-uri, the name of a study",
        show_default=False,
    )],
    tracking_uri: Annotated[str | None, typer.Option(
        metavar="URI", help="bring the study from this MLflow instead, of whatever version exported it there",
    )] = None,
) -> None:
    """Bring a study into VSETUNE_HOME. All of it is checked first. Importing again adds nothing; a newer export of the
    same study brings what is new."""
    from vsetune.records.moved_study import import_study

    with interruptible("nothing was changed"), stderr.status("importing"):
        if tracking_uri is None:
            study, files = import_study(Path(source))
        else:
            from vsetune.records.mlflow_import import bring_study

            uri = store_uri(tracking_of(tracking_uri))
            if uri is None:
                raise UsageError(
                    BAD_VALUE(option="--tracking-uri", got=tracking_uri, need="the address of an MLflow")
                )
            study, files = bring_study(source, uri)
    results.out(f"{study}: {counted(files, 'file', 'files')} brought")


@app.command(epilog="Example: vsetune tracking doctor quickstart")
def doctor(
    study: Annotated[str | None, typer.Argument(help="name of a study; default: all of the home")] = None,
    as_json: Json = False,
) -> None:
    """Look for damaged logs, missing or damaged weights, and events that MLflow does not have; a line for each finding
    names the place, the damage and its repair. Exit code 0: no findings; 1: findings; 2: no such study."""
    from vsetune.study.recorded import examine

    studies = Studies()
    names = studies.names()
    if study is not None and study not in names:
        raise unknown_study(study, names)
    names = names if study is None else [study]
    with stderr.status("examining"):
        found = [finding for name in names for finding in examine(studies, name)]
    if as_json:
        print_json([vars(each) for each in found])
    else:
        for each in found:
            results.out(f"{each.where}: {each.what}; {each.how}")
    inform(f"{counted(len(names), 'study', 'studies')} examined: {counted(len(found), 'finding', 'findings')}")
    if found:
        raise typer.Exit(1)
