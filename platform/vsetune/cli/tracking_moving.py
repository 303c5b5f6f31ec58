"""`vsetune tracking export` and `import`: a study carried from one tracking store to another."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from vsetune.cli.output import interruptible, messages, place_to_write, results, say
from vsetune.cli.recorded_runs import recorded_store
from vsetune.cli.tracking_option import Tracking, tracking_of

EXPORT_EXAMPLE = "Example: vsetune tracking export quickstart --to quickstart.zip"
IMPORT_EXAMPLE = "Example: vsetune tracking import quickstart.zip --tracking-uri http://mlflow:5000"


def export(
    study: Annotated[str, typer.Argument(help="name of a study in the store", show_default=False)],
    to: Annotated[Path, place_to_write("--to", help="a .zip file, or a new folder", show_default=False)],
    tracking_uri: Tracking = None,
) -> None:
    """Write everything that the store keeps of a study into one file or folder, for `tracking import`: runs, params,
    numbers, tags, data sets, artifacts, and the search where it lies in the study's folder. Not written: checkpoints of
    unfinished trials (folder trials), and copies of own components; carry those with the study's folder."""
    from vsetune.jobs.preparation import tracking_uri as store_uri
    from vsetune.jobs.recorded_studies import record_of
    from vsetune.jobs.study_folder import folder_of
    from vsetune.tracking.exported_study import written_study
    from vsetune.tracking.moving import exporter
    from vsetune.tracking.study_files import copied_search, waiting_records

    record = record_of(recorded_store(tracking_uri), study)
    folder = folder_of(record)
    waiting = waiting_records(folder)
    source = exporter(store_uri(tracking_of(tracking_uri)))
    with (
        interruptible("nothing was written"), tempfile.TemporaryDirectory() as into, written_study(to) as writer,
        messages.status(f"exporting {study}") as status,
    ):
        search = copied_search(folder, Path(into))
        found = source.export(study, writer, search=search, on_run=lambda name: status.update(f"exporting {name}"))
    searched = "the search with it" if search else "without its search"
    results.out(f"{study}: {found.runs} runs in {to.absolute()}, {searched}", highlight=False)
    if search is None:
        say(f"note: no search in {folder}; where a database keeps it (search.storage), that database still has it, "
            "else the moved study can be read and compared, but not resumed")
    if waiting is None or found.running:
        say(f"warning: the study is running, {found.running} attempts are as they were a moment ago; export it again "
            "when it has ended, and import that: what is there is brought up to date")
    if waiting:
        say(f"warning: {waiting} records wait in {folder} and are not in the export; deliver them (vsetune tracking "
            f"flush {folder}), then export again")
    if found.bare:
        say(f"warning: {len(found.bare)} runs have no artifacts that this machine sees (first {found.bare[0]}); export "
            "where the store's artifacts are, or look with vsetune tracking doctor")


def import_(
    file: Annotated[Path, typer.Argument(help="what `tracking export` wrote", show_default=False)],
    tracking_uri: Tracking = None,
) -> None:
    """Bring an exported study, from whomever, into a tracking store. All of it is checked first: every file against its
    SHA-256, every value. Importing again adds nothing; after an interruption it goes on; a newer export brings what is
    new. Runs get new ids (the old one is the tag vsetune.moved_from). The search goes to runs/STUDY under VSETUNE_HOME,
    unless there is one."""
    from vsetune.jobs.preparation import artifact_root
    from vsetune.jobs.preparation import tracking_uri as store_uri
    from vsetune.jobs.study_folder import folder_told
    from vsetune.tracking.exported_content import SEARCH_FILE
    from vsetune.tracking.exported_study import opened_study
    from vsetune.tracking.moving import importer
    from vsetune.tracking.study_files import place_search

    tracking = tracking_of(tracking_uri)
    uri = store_uri(tracking)
    with opened_study(file) as exported, interruptible("repeat it to go on"):
        with messages.status(f"importing {exported.study}") as status:
            found = importer(uri, artifact_root(uri)).bring(
                exported, on_run=lambda name: status.update(f"importing {name}")
            )
        results.out(
            f"{exported.study}: {found.new} runs brought, {found.completed} completed, {found.there} were there",
            highlight=False,
        )
        if not exported.has(SEARCH_FILE):
            say("note: the export holds no search; the study resumes only where search.storage is the database that "
                "keeps it")
            return
        folder = folder_told({}, exported.study)
        with tempfile.TemporaryDirectory() as into:
            if place_search(exported.extract(SEARCH_FILE, Path(into)), folder):
                say(f"its search is in {folder}; go on with `vsetune study run FILE --resume`")
            elif found.new:
                say(f"warning: {folder} has a search of its own, which stays; move it away and import again if it is "
                    "not of this study")
