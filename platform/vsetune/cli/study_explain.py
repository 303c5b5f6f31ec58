"""`vsetune study explain`: a page on the search of a study, from what the tracking store knows of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from vsetune.cli.output import messages, place_to_write, results
from vsetune.cli.recorded_runs import keep_with_run
from vsetune.cli.study_watch import StudyName
from vsetune.cli.tracking_option import Tracking, tracking_of
from vsetune.config.spec.paths import home
from vsetune.errors import UsageError
from vsetune.files.whole_files import write_text

EXPLAIN_EXAMPLE = "Example: vsetune study explain quickstart --output search.html"
_KEPT_AS = "search.html"


def explain_study(
    study: StudyName,
    output: Annotated[Path | None, place_to_write(help="page to write; default: under VSETUNE_HOME/searches")] = None,
    tracking_uri: Tracking = None,
) -> None:
    """Write a web page on the search of a study, running or ended: importances of its settings, what each was tried at,
    the best so far, where the epochs went, why trials were stopped. The page is kept with the study's run in MLflow."""
    from vsetune.explaining_search import explain, to_html
    from vsetune.jobs.store_address import existing_store
    from vsetune.jobs.store_address import tracking_uri as store_uri
    from vsetune.object_storage.home_files import keep_in_home
    from vsetune.tracking.study_state import open_states

    tracking = tracking_of(tracking_uri)
    store = existing_store(tracking)
    attempts = store.attempts(study)
    if not attempts:
        raise UsageError(f"study {study}: has no trials yet; start it, or wait for its first validation")
    record = next(each for each in store.studies() if each.name == study)
    with messages.status("weighing the settings"):
        page = to_html(explain(record, attempts))
    path = output or home() / "searches" / f"{study}.html"
    write_text(path, page)
    keep_in_home(path)
    results.out(str(path.absolute()), highlight=False)
    keep_with_run(
        lambda: open_states(store_uri(tracking)).keep_page(study, _KEPT_AS, page),
        kept=f"kept with the run of study {study} as {_KEPT_AS}",
    )
