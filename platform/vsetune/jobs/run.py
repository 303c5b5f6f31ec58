"""Runs a study to its last trial. Resumable after anything."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rich.console import Console

from vsetune.config.spec.loading import dump_yaml
from vsetune.config.spec.secrets import shown_plain
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import StorageError, StudyConflict, UsageError, VsetuneError
from vsetune.files.whole_files import write_text
from vsetune.jobs.changed_plugins import OPTION, RefusedCell, not_begun, refused_cells, require_own_code
from vsetune.jobs.cluster import cluster_address, ray_cluster
from vsetune.jobs.confirmations import Confirming
from vsetune.jobs.credentials import credentials_not_forwarded
from vsetune.jobs.first_stages import plugins_of_stage
from vsetune.jobs.kept_plugins import changed_since, keep_plugins
from vsetune.jobs.ledger import StudyLedger
from vsetune.jobs.placement import place_trials, require_places
from vsetune.jobs.preparation import PreparedStudy, existing_store, open_search, open_tracking, tracking_uri
from vsetune.jobs.stop_watch import stop_watched
from vsetune.jobs.stopping import StopRequest, sigterm_like_ctrl_c
from vsetune.jobs.study_home import StudyHome, held_home
from vsetune.jobs.study_metrics import exported
from vsetune.jobs.study_progress import rebuilt_line, resumed_line
from vsetune.jobs.study_results import recorded_in, write_results
from vsetune.jobs.warm_start import kept_or_taken, lines_of
from vsetune.jobs.winner_models import log_winners
from vsetune.leaderboard.rows import Leaderboard
from vsetune.tracking.journaled_store import JournaledStore
from vsetune.tracking.records import PLUGIN_TAG, AttemptRecord
from vsetune.tracking.store import StudyStatus, TrackingStore
from vsetune.tracking.study_lock import LOCK_FILE
from vsetune.tracking.study_state import open_states

_STUDY_FILE = "study.yaml"
"""In the folder of a study that was begun from there."""
DELIVER_WITHIN_S = 15.0
"""How long the end of a study waits for a tracking store that takes nothing; what is left stays in the journal."""
_DELIVER_IN_HASTE_S = 3.0
"""The same, of one that somebody broke off."""
_MADE_WITHIN_S = 20.0
"""How long a refused study waits for the store that it has begun to make, for whatever comes next."""

Ending = Literal["finished", "partly failed", "failed", "interrupted"]
_RECORDED_AS: Mapping[Ending, StudyStatus] = {
    "finished": "finished", "partly failed": "finished", "failed": "failed", "interrupted": "killed",
}


@dataclass(frozen=True)
class Trouble:
    """A trial that has not finished, and why, in one line. is_open: `--resume` goes on with it."""

    trial: str
    is_open: bool
    reason: str


@dataclass(frozen=True)
class StudyOutcome:
    """How a run of a study ended. counts: trials by status. board: None if there is nothing to compare, see `remark`.

    page: the leaderboard as a web page, also kept with the study's run in the tracking store. troubles: trials that
    failed or were left open. stopped_by: why the run ended before the study did, None if nobody asked. undelivered:
    records that wait in the journal for the tracking store; outage: why. attempts: all of them, waiting ones too.
    experiment: the study's in MLflow, None where it is interrupted or the store does not say.
    """

    counts: Mapping[str, int]
    ending: Ending
    board: Leaderboard | None
    page: Path | None
    remark: str
    troubles: Sequence[Trouble]
    stopped_by: str | None
    undelivered: int
    outage: str
    attempts: Sequence[AttemptRecord] = ()
    experiment: str | None = None

    @property
    def was_interrupted(self) -> bool:
        """There is work left for `--resume`."""
        return self.ending == "interrupted"


def run_study(
    prepared: PreparedStudy, *, resume: bool, retry_failed: bool, address: str | None, console: Console,
    confirming: Confirming | None = None, changed_plugins: bool = False,
) -> StudyOutcome:
    """Runs every promised trial of a study. One process per study, on all machines that share its home; a second one
    is refused, and one that another machine has taken over from ends as interrupted. A new study is begun once its
    search is there and a cluster with room for its trials: what is refused leaves nothing behind.

    address: of a running Ray cluster; None starts Ray on this machine unless RAY_ADDRESS is set. confirming: run this
    again, of a study whose search is over (else UsageError); None: what the study itself promises. changed_plugins:
    where plugins have changed since the study began, cells that have not begun run with the new code; those that have
    stay as they are.
    """
    cluster_address(address)  # a wrong one is told before anything is done
    spec, folder, stop = prepared.spec, prepared.folder, StopRequest()
    with (
        held_home(folder, on_lost=stop.request) as held, sigterm_like_ctrl_c(), _left_without_a_trace(folder) as opened,
        _tracking(prepared, held, opened) as store,
    ):
        is_new = not opened.is_set()
        with ExitStack() as begun, ExitStack() as connected:

            def connect() -> None:
                """ConfigError where the cluster has no room for some trial."""
                copies = keep_plugins([*prepared.plugins, *plugins_of_stage(spec, folder)], folder)
                going_on = "--resume" if confirming is None else "the same command"
                farewell = f"nothing finished is lost, go on with {going_on} (results are in {folder})"
                connected.enter_context(ray_cluster(address, stop, farewell=farewell, modules=copies))
                _say(require_places(prepared), console)

            warm_start = kept_or_taken(
                spec, prepared.cells, folder, store=lambda: existing_store(spec.tracking),
                data_fingerprint=prepared.data_fingerprint,
            )
            _say(lines_of(warm_start), console)
            search = open_search(prepared, held)
            left_as = "killed" if confirming is None else _status_before(spec)
            if is_new:
                connect()
            # from before others see it as running: what they ask from then on is for this driver
            begun.enter_context(stop_watched(spec.study, tracking_uri(spec.tracking), stop, is_new=not resume))
            _open(store, prepared, resume=resume, changed_plugins=changed_plugins)
            opened.set()
            begun.enter_context(_left_as_it_was(spec.study, store, left_as))
            write_text(folder / _STUDY_FILE, dump_yaml(shown_plain(spec.to_plain())))
            held.keep()
            left_alone = refused_cells(prepared, store.attempts(spec.study))
            require_own_code(spec.study, left_alone, cells=len(prepared.cells) if changed_plugins else 0)
            _say([each.reason for each in left_alone], console)
            for cell in not_begun(prepared, store.attempts(spec.study)) if changed_plugins else ():
                search.forget(cell)
            prepared = _without(prepared, left_alone)
            ledger = StudyLedger(spec, prepared.cells, store, search, confirming=confirming, warm_start=warm_start)
            ledger.recover(retry_failed=retry_failed)
            rebuilt = rebuilt_line(ledger)
            _say([] if rebuilt is None else [rebuilt], console)
            if confirming is not None and ledger.searching():
                raise UsageError(
                    f"study {spec.study}: its search is not over in {', '.join(ledger.searching())}; go on with it "
                    "first: vsetune study run FILE --resume"
                )
            ended = [name for name, trial in ledger.trials.items() if trial.status in ("finished", "pruned")]
            held.forget_ended([prepared.trial_folder(name) for name in ended])
            if ledger.has_work():
                _say([resumed_line(ledger)] if resume and ledger.trials else [], console)
                if not is_new:
                    connect()
                with credentials_not_forwarded(), exported(ledger, backlog=store.pending, stop=stop) as metrics:
                    place_trials(prepared, ledger, stop, console, forget=held.forget_checkpoint, metrics=metrics)
            connected.close()
            ledger.interrupt()
            ending = _ending(ledger, left_alone)
            attempts = store.attempts(spec.study)
            is_away = store.deliver(DELIVER_WITHIN_S) > 0
            recorded = None if is_away or ending == "interrupted" else recorded_in(prepared)
            results = write_results(prepared, attempts, recorded)
            is_open = ending == "interrupted" or not all(each.is_whole for each in left_alone)
            store.finish_study(spec.study, "killed" if is_open else _RECORDED_AS[ending], results.files)
        undelivered = store.deliver(0.0 if is_away else DELIVER_WITHIN_S)
        outage = store.outage() or "it is slow"
        if ending != "interrupted":
            _say(log_winners(prepared, None if undelivered else recorded), console)
    counts = Counter(trial.status if trial.is_closed else "open" for trial in ledger.trials.values())
    stopped_by = stop.reason or (ledger.search_outage if ending == "interrupted" else None)
    return StudyOutcome(
        counts, ending, results.board, results.page, results.remark, _troubles(ledger, left_alone), stopped_by,
        undelivered, outage, tuple(attempts), _experiment(recorded, spec.study),
    )


def _experiment(recorded: TrackingStore | None, study: str) -> str | None:
    try:
        return None if recorded is None else recorded.experiment_of(study)
    except VsetuneError:  # the study has ended and is recorded; this is a link to it
        return None


def _say(lines: Sequence[str], console: Console) -> None:
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _open(store: JournaledStore, prepared: PreparedStudy, *, resume: bool, changed_plugins: bool) -> None:
    """StudyConflict that names the file, where somebody's own code has changed since the study began and nobody asked
    to go on all the same."""
    try:
        store.open_study(prepared.record(), resume=resume)
    except StudyConflict as error:
        first = _code_at_first(prepared) if resume and changed_plugins else {}
        if first:
            store.open_study(prepared.record(first), resume=True)
            return
        change = changed_since(prepared.folder, prepared.plugins)
        if change is None:
            raise
        raise StudyConflict(
            f"study {prepared.spec.study}: {change}; {OPTION} goes on with cells that have not begun"
        ) from error


def _code_at_first(prepared: PreparedStudy) -> dict[str, str]:
    """sha256 of the plugins that the study began with, by key."""
    known = (each for each in existing_store(prepared.spec.tracking).studies() if each.name == prepared.spec.study)
    tags = next((each.tags for each in known), {})
    return {tag.removeprefix(PLUGIN_TAG): sha256 for tag, sha256 in tags.items() if tag.startswith(PLUGIN_TAG)}


def _without(prepared: PreparedStudy, left_alone: Sequence[RefusedCell]) -> PreparedStudy:
    names = {each.cell for each in left_alone}
    return replace(prepared, cells=[cell for cell in prepared.cells if cell.name not in names])


def _status_before(spec: StudySpec) -> StudyStatus:
    """Of a study that is confirmed: as it ended, or killed where the store has no end of it or does not answer."""
    try:
        status = open_states(tracking_uri(spec.tracking)).state(spec.study).status
    except UsageError:
        return "killed"
    return "killed" if status == "running" else status


@contextmanager
def _left_without_a_trace(folder: Path) -> Iterator[threading.Event]:
    """A study that is refused before it is opened leaves its folder as it was, and none where there was none, so that
    the corrected file meets nothing of it. Yields what is set once it is opened; of one that goes on it is set already.

    The caller holds the lock in the folder.
    """
    opened, lock, before = threading.Event(), folder / LOCK_FILE, set(folder.iterdir())
    if (folder / _STUDY_FILE).exists():
        opened.set()
    try:
        yield opened
    except BaseException:
        if not opened.is_set():
            for path in set(folder.iterdir()) - before if before > {lock} else folder.iterdir():
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)
            with suppress(OSError):  # others have files there
                folder.rmdir()
                folder.parent.rmdir()
        raise


@contextmanager
def _left_as_it_was(study: str, store: JournaledStore, status: StudyStatus) -> Iterator[None]:
    """A study that was opened and cannot go on is not left as running, nor one that had finished as interrupted."""
    try:
        yield
    except StorageError:  # an interruption, or another machine has the study now
        raise
    except (UsageError, KeyboardInterrupt) as error:  # Ctrl-C before Ray has started, a second one, or at the end
        store.finish_study(study, status, [])
        store.deliver(_DELIVER_IN_HASTE_S if isinstance(error, KeyboardInterrupt) else DELIVER_WITHIN_S)
        raise


@contextmanager
def _tracking(prepared: PreparedStudy, held: StudyHome, opened: threading.Event) -> Iterator[JournaledStore]:
    """The store of a study that is refused before it is opened is not left half-made, if it was about to be made."""
    store = open_tracking(prepared, held)
    try:
        yield store
    finally:
        store.close(0.0 if opened.is_set() else _MADE_WITHIN_S)


def _ending(ledger: StudyLedger, left_alone: Sequence[RefusedCell]) -> Ending:
    """left_alone: a cell of it that is not whole counts as failed, for no command goes on with it as things are."""
    if ledger.has_work():
        return "interrupted"
    failed = sum(trial.status == "failed" for trial in ledger.trials.values())
    if not failed:
        return "finished" if all(each.is_whole for each in left_alone) else "partly failed"
    return "failed" if failed == len(ledger.trials) else "partly failed"


def _troubles(ledger: StudyLedger, left_alone: Sequence[RefusedCell]) -> list[Trouble]:
    return [Trouble(each.cell, True, each.reason) for each in left_alone if not each.is_whole] + [
        Trouble(name, not trial.is_closed, trial.error or "not started yet")
        for name, trial in ledger.trials.items() if trial.status == "failed" or not trial.is_closed
    ]
