"""`vsetune study explain`: a page on the search of a study, from its log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from vsetune.cli.output import messages, place_to_write, results
from vsetune.cli.study_watch import StudyName
from vsetune.config.spec.paths import home
from vsetune.errors import UsageError
from vsetune.files.whole_files import write_text

EXPLAIN_EXAMPLE = "Example: vsetune study explain quickstart --output search.html"


def explain_study(
    study: StudyName,
    output: Annotated[Path | None, place_to_write(help="page to write; default: under VSETUNE_HOME/searches")] = None,
) -> None:
    """Write a web page on the search of a study, running or ended: importances of its settings, what each was tried at,
    the best so far, where the epochs went, why trials were stopped."""
    from vsetune.explaining_search import explain, to_html
    from vsetune.object_storage.home_files import keep_in_home
    from vsetune.records.studies import Studies

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
