"""`vsetune study confirm` and `explain`: what is done with a study whose search is over."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vsetune.cli.output import interruptible, messages, place_to_write, results
from vsetune.cli.study_report import report
from vsetune.cli.study_watch import StudyName
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import UsageError
from vsetune.storage.paths import home
from vsetune.storage.whole_files import write_text
from vsetune.study.study_file import load_study

if TYPE_CHECKING:
    from vsetune.study.preparation import PreparedStudy


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
    from vsetune.study.confirmations import confirming_again
    from vsetune.study.run import run_study
    from vsetune.study.stopping import sigterm_like_ctrl_c

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
    from vsetune.records.studies import Studies
    from vsetune.study.preparation import prepare_spec
    from vsetune.study.recorded_studies import study_of

    given = load_study(Path(study)) if Path(study).is_file() else None
    if given is None and Path(study).suffix in (".yaml", ".yml"):
        raise UsageError(f"{study}: no such file; name a study file, or a study that has begun")
    record = Studies().record(study if given is None else given.study)
    spec: StudySpec = study_of(record) if given is None else given
    return prepare_spec(spec, messages, where=study if given is not None else f"study {study}")


EXPLAIN_EXAMPLE = "Example: vsetune study explain quickstart --output search.html"


def explain_study(
    study: StudyName,
    output: Annotated[Path | None, place_to_write(help="page to write; default: under VSETUNE_HOME/searches")] = None,
) -> None:
    """Write a web page on the search of a study, running or ended: importances of its settings, what each was tried at,
    the best so far, where the epochs went, why trials were stopped."""
    from vsetune.records.studies import Studies
    from vsetune.storage.home_files import keep_in_home
    from vsetune.study.explaining import explain, to_html

    studies = Studies()
    attempts = studies.attempts(study)
    if not attempts:
        raise UsageError(f"study {study}: has no trials yet; start it, or wait for its first validation")
    with messages.status("weighing the settings"):
        page = to_html(explain(studies.record(study), attempts))
    path = output or home() / "searches" / f"{study}.html"
    write_text(path, page)
    keep_in_home(path)
    results.out(str(path.absolute()), highlight=False)
