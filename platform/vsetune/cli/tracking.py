"""`vsetune tracking`: MLflow brought up to date; studies moved and looked over."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vsetune.cli.options import Tracking, tracking_of
from vsetune.cli.output import counted, interruptible, messages, place_to_write, print_json, results, say
from vsetune.errors import UsageError

app = typer.Typer(
    no_args_is_help=True, help="Bring MLflow up to date, move studies, look over what they left.",
    epilog="Example: vsetune tracking flush quickstart",
)
_PATIENCE_S = 20.0


@app.command(epilog="Example: vsetune tracking flush quickstart")
def flush(
    study: Annotated[str, typer.Argument(metavar="STUDY_OR_FILE", help="name of a study, or its file")],
    tracking_uri: Tracking = None,
) -> None:
    """Export to MLflow what a study recorded while MLflow was away. Resuming the study does the same. Exit code 0 if
    nothing is left, else 1."""
    from vsetune.study.study_file import load_study
    from vsetune.study.study_records import export_records

    given = load_study(Path(study)) if Path(study).is_file() else None
    name = study if given is None else given.study
    tracking = tracking_of(tracking_uri) if tracking_uri else None if given is None else given.tracking
    with interruptible("the same command goes on"), messages.status("exporting"):
        left, why = export_records(name, tracking, patience_s=_PATIENCE_S)
    results.out(f"{name}: {left} events left" + (f": {why}" if left else ""), highlight=False)
    if left:
        raise typer.Exit(1)


@app.command(epilog="Example: vsetune tracking export quickstart --to quickstart.zip")
def export(
    study: Annotated[str, typer.Argument(help="name of a study", show_default=False)],
    to: Annotated[Path, place_to_write("--to", help="a .zip file, or a new folder", show_default=False)],
) -> None:
    """Write a study into one file or folder, for `tracking import`: its log, file, boards, best weights and galleries,
    as far as they are on this machine. Not written: checkpoints of trials that have not finished, own components."""
    from vsetune.records.moved_study import export_study
    from vsetune.records.studies import Studies

    studies = Studies()
    studies.record(study)
    with interruptible("nothing was written"), messages.status(f"exporting {study}"):
        files = export_study(study, to)
    results.out(f"{study}: {files} files in {to.absolute()}", highlight=False)
    if studies.state(study).status == "running":
        say("warning: the study is running and the export has it as it was; export it again when it has ended")


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

    with interruptible("nothing was changed"), messages.status(f"importing {source}"):
        if tracking_uri is None:
            study, files = import_study(Path(source))
        else:
            from vsetune.records.mlflow_import import bring_study
            from vsetune.study.places import tracking_uri as store_uri

            uri = store_uri(tracking_of(tracking_uri))
            if uri is None:
                raise UsageError("--tracking-uri: got none, need the address of an MLflow")
            study, files = bring_study(source, uri)
    results.out(f"{study}: {counted(files, 'file', 'files')} brought", highlight=False)


@app.command(epilog="Example: vsetune tracking doctor quickstart")
def doctor(
    study: Annotated[str | None, typer.Argument(help="name of a study; default: all of the home")] = None,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="the findings as JSON")] = False,
) -> None:
    """Look for damaged logs, missing or damaged weights, and events that MLflow does not have; a line each says where,
    what, and how it is repaired. Exit code 0: nothing is wrong; 1: there are findings; 2: no such study."""
    from vsetune.records.studies import Studies, unknown_study
    from vsetune.study.recorded import examine

    studies = Studies()
    names = studies.names()
    if study is not None and study not in names:
        raise unknown_study(study, names)
    names = names if study is None else [study]
    with messages.status("examining"):
        found = [finding for name in names for finding in examine(studies, name)]
    if as_json:
        print_json([vars(each) for each in found])
    else:
        for each in found:
            results.out(f"{each.where}: {each.what}; {each.how}", highlight=False)
    say(f"{counted(len(names), 'study', 'studies')} examined: {counted(len(found), 'finding', 'findings')}")
    if found:
        raise typer.Exit(1)
