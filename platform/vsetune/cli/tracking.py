"""`vsetune tracking`: what studies recorded while their tracking store was away; studies moved, looked over, mended."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vsetune.cli import tracking_doctor, tracking_moving
from vsetune.cli.output import interruptible, messages, results
from vsetune.cli.tracking_option import tracking_of
from vsetune.config.study.study_spec import TrackingSpec
from vsetune.errors import StorageError, UsageError

if TYPE_CHECKING:
    from vsetune.tracking.journaled_store import JournaledStore

app = typer.Typer(
    no_args_is_help=True, help="Deliver, move, examine and mend what studies recorded.",
    epilog="Example: vsetune tracking flush studies/quickstart.yaml",
)
app.command("doctor", epilog=tracking_doctor.EXAMPLE)(tracking_doctor.doctor)
app.command("export", epilog=tracking_moving.EXPORT_EXAMPLE)(tracking_moving.export)
app.command("import", epilog=tracking_moving.IMPORT_EXAMPLE)(tracking_moving.import_)

_PATIENCE_S = 20.0
_SPEC_FILE = "study.yaml"


@app.command(epilog="Example: vsetune tracking flush studies/quickstart.yaml")
def flush(
    study: Annotated[Path, typer.Argument(help="study file (YAML), or the folder of a study", show_default=False)],
    tracking_uri: Annotated[
        str | None, typer.Option(metavar="URI", help="default: what the study says, as `study run` reads it")
    ] = None,
) -> None:
    """Deliver the records that wait in a study's journal to its tracking store, and close attempts that a crash left
    running a day ago. Resuming the study does the same. Exit code 0 if nothing is left, else 1."""
    from vsetune.jobs.preparation import artifact_root
    from vsetune.jobs.study_home import held_home
    from vsetune.tracking.opening import open_journaled

    folder, uri = _folder_and_uri(study, tracking_uri)
    with held_home(folder) as held, interruptible("what is left waits in the journal"):
        store = open_journaled(uri, artifact_root(uri), folder, check=held.check, bring=held.bring)
        with messages.status("delivering"):
            _deliver(store)
        why = store.outage()
        left = store.close(0.0)
    told = f"{folder.name}: {store.delivered()} records delivered, {left} left"
    results.out(told if left == 0 else f"{told}: {why or 'the store is slow; repeat'}", highlight=False)
    if left:
        raise typer.Exit(1)


def _deliver(store: JournaledStore) -> None:
    """Until all is delivered, or the store has not answered for a while."""
    from vsetune.tracking.delivery import STALE_AFTER_S

    if not store.deliver(_PATIENCE_S):
        with contextlib.suppress(StorageError):  # whoever opens the store next closes them
            store.close_stale(STALE_AFTER_S)


def _folder_and_uri(study: Path, tracking_uri: str | None) -> tuple[Path, str]:
    """The folder of the journal and the store it belongs to. UsageError when there is no journal."""
    from vsetune.jobs.preparation import tracking_uri as resolved_uri
    from vsetune.jobs.study_file import load_study
    from vsetune.jobs.study_folder import study_folder
    from vsetune.object_storage.home_files import bring_mirrored
    from vsetune.tracking.journal import JOURNAL_FILE

    if not study.exists():  # a study's folder that another machine has
        bring_mirrored(study.absolute(), lambda name: name in (JOURNAL_FILE, _SPEC_FILE))
    if study.is_dir():
        folder, file = study.absolute(), study / _SPEC_FILE
    else:
        folder, file = study_folder(load_study(study)), study
    if not (folder / JOURNAL_FILE).is_file():
        bring_mirrored(folder, lambda name: name == JOURNAL_FILE)
    if not (folder / JOURNAL_FILE).is_file():
        raise UsageError(f"{folder}: holds no journal of a study ({JOURNAL_FILE}); name the file or folder of one")
    if tracking_uri is not None:
        return folder, resolved_uri(tracking_of(tracking_uri))
    tracking = load_study(file).tracking if file.is_file() else TrackingSpec()
    uri = resolved_uri(tracking)
    if ":***@" in uri:
        raise UsageError(
            f"{file}: tracking.uri has its password masked; name the study file that you ran, or give --tracking-uri"
        )
    return folder, uri
