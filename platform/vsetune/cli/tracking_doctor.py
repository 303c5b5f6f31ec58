"""`vsetune tracking doctor`: what is wrong with the records of studies, and mending it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vsetune.cli.output import counted, messages, print_json, results, say
from vsetune.cli.recorded_runs import recorded_store
from vsetune.cli.tracking_option import Tracking, tracking_of
from vsetune.config.spec.paths import home, remote_place

if TYPE_CHECKING:
    from vsetune.tracking.doctor import Finding, WeightsOf
    from vsetune.records.attempts import AttemptStart, StudyRecord

EXAMPLE = "Example: vsetune tracking doctor quickstart --mend"
_WEIGHTS = "best.safetensors"


def doctor(
    study: Annotated[str | None, typer.Argument(help="name of a study; default: all of the store")] = None,
    mend: Annotated[bool, typer.Option("--mend", metavar="", help="mend what can be; default: only tell")] = False,
    tracking_uri: Tracking = None,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="the findings as JSON")] = False,
) -> None:
    """Look for half-written runs, points and attempts recorded twice, missing artifacts, and records that wait in
    journals; a line each says where, what, and how it is mended. Attempts of a driver that lives are left alone; what
    is removed goes to MLflow's bin. Exit code 0: nothing is wrong any more; 1: findings are left; 2: no such study."""
    from vsetune.jobs.preparation import tracking_uri as store_uri
    from vsetune.tracking.doctor import doctor_of

    records = [each for each in recorded_store(tracking_uri).studies() if study in (None, each.name)]
    with messages.status("examining"):
        found = doctor_of(store_uri(tracking_of(tracking_uri))).examine(study, weights=_weights(records))
        found += _waiting(records)
    mended = [finding for finding in found if mend and finding.mend is not None]
    for finding in mended:
        assert finding.mend is not None
        finding.mend()
    left = len(found) - len(mended)
    if as_json:
        print_json([
            {"where": each.where, "what": each.what, "how": each.how, "can_mend": each.mend is not None,
             "is_mended": each in mended}
            for each in found
        ])
    else:
        for finding in found:
            results.out(f"mended: {finding.where}: {finding.what}" if finding in mended else finding.line,
                        highlight=False)
    examined, findings = counted(len(records), "study", "studies"), counted(len(found), "finding", "findings")
    say(f"{examined} examined: {findings}, {len(mended)} mended, {left} left")
    if left:
        raise typer.Exit(1)


def _weights(records: list[StudyRecord]) -> WeightsOf:
    """In the folder of the trial, on this machine; brought there where another machine of the home has sent it."""
    from vsetune.jobs.study_folder import folder_of
    from vsetune.object_storage.home_files import bring_mirrored

    folders = {record.name: folder_of(record) for record in records}

    def find(start: AttemptStart) -> Path | None:
        if start.study not in folders:
            return None
        file = folders[start.study] / "trials" / start.trial / _WEIGHTS
        if not file.is_file():
            bring_mirrored(file.parent, lambda name: name == _WEIGHTS)
        return file if file.is_file() else None

    return find


def _waiting(records: list[StudyRecord]) -> list[Finding]:
    from vsetune.jobs.study_folder import folder_of
    from vsetune.tracking.doctor import Finding
    from vsetune.tracking.study_files import waiting_records

    found = []
    for record in records:
        folder = folder_of(record)
        count = waiting_records(folder)
        place = remote_place(folder) if folder.is_relative_to(home()) else None
        if count:
            found.append(Finding(
                f"study {record.name}", f"{count} records wait in {place or folder}", f"vsetune tracking flush {folder}"
            ))
    return found
