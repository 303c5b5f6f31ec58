"""`vsetune study confirm`: the winners of a study, their runners-up and the papers' settings again, with new seeds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vsetune.cli.output import interruptible, messages
from vsetune.cli.study_report import report
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import UsageError
from vsetune.jobs.study_file import load_study

if TYPE_CHECKING:
    from vsetune.jobs.preparation import PreparedStudy

CONFIRM_EXAMPLE = "Example: vsetune study confirm quickstart --seeds 5"


def confirm_study(
    study: Annotated[
        str, typer.Argument(metavar="STUDY_OR_FILE", help="name of a study, or its file", show_default=False)
    ],
    seeds: Annotated[
        int, typer.Option(min=1, max=1000, help="of every configuration; more of them later add to these")
    ] = 3,
    address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Ray cluster; default: RAY_ADDRESS, or this machine")
    ] = None,
) -> None:
    """Run what a study has found again: of every cell the winner, the runner-up and the papers' settings, each over the
    same seeds, none of which has searched, and to the last epoch.

    The search of the study must be over. The seeds are those that the file lists after the first, then the smallest
    that it does not list; what has finished is not run again, so the same command goes on after an interruption. The
    numbers of the leaderboard then come from these seeds; runner-up and papers' settings stand in its notes.
    """
    from vsetune.jobs.confirmations import confirming_again
    from vsetune.jobs.run import run_study
    from vsetune.jobs.stopping import sigterm_like_ctrl_c

    again = f"vsetune study confirm {study} --seeds {seeds}"
    with interruptible(f"nothing finished is lost, go on with: {again}"), sigterm_like_ctrl_c():
        prepared = _prepared(study)
        outcome = run_study(
            prepared, resume=True, retry_failed=False, address=address, console=messages,
            confirming=confirming_again(prepared.spec, seeds),
        )
    report(prepared, outcome, go_on=again, file=study)


def _prepared(study: str) -> PreparedStudy:
    """UsageError for what is neither a file nor a study that has begun."""
    from vsetune.jobs.preparation import prepare_spec
    from vsetune.jobs.recorded_studies import study_of
    from vsetune.records.studies import Studies

    given = load_study(Path(study)) if Path(study).is_file() else None
    if given is None and Path(study).suffix in (".yaml", ".yml"):
        raise UsageError(f"{study}: no such file; name a study file, or a study that has begun")
    record = Studies().record(study if given is None else given.study)
    spec: StudySpec = study_of(record) if given is None else given
    return prepare_spec(spec, messages, where=study if given is not None else f"study {study}")
