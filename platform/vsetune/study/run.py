"""Run of a study to its last trial: its beginning and its end. It can be resumed after any interruption.

In between `place_trials` runs the loop of `tune_adapter.py`, which asks for trials, decides and records.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGTERM, Signals
from typing import Literal

from rich.console import Console, RenderableType

from vsetune.board.rows import Leaderboard
from vsetune.board.terminal import render_table
from vsetune.config.spec.loading import dump_yaml
from vsetune.config.study.cells import refusal
from vsetune.errors import StorageError, StudyConflict, UsageError, one_line
from vsetune.home.addresses import shown_plain
from vsetune.home.whole_files import write_text
from vsetune.records.events import StudyStatus
from vsetune.records.log import LOG_FILE
from vsetune.records.state import Attempt
from vsetune.records.studies import Studies
from vsetune.records.study_lock import LOCK_FILE
from vsetune.records.writer import StudyWriter, repeats_of
from vsetune.study.cluster import cluster_address, ray_cluster
from vsetune.study.confirmations import Confirming
from vsetune.study.first_stages import plugins_of_stage
from vsetune.study.kept_plugins import changed_since, keep_plugins
from vsetune.study.ledger import StudyLedger
from vsetune.study.placement import credentials_not_forwarded, place_trials, require_places
from vsetune.study.preparation import PreparedStudy
from vsetune.study.results import board_of, log_winners, write_results
from vsetune.study.stopping import SIGNALS, StopRequest, sigterm_like_ctrl_c
from vsetune.study.study_home import StudyHome, held_home
from vsetune.study.study_metrics import exported
from vsetune.study.study_progress import resumed_line
from vsetune.study.study_records import StudyRecords, kept_names, require_sampled, study_records

_STUDY_FILE = "study.yaml"
"""In the folder of a study that has begun on this machine."""
DELIVER_WITHIN_S = 15.0
"""How long the end of a study waits for an MLflow that accepts no events; the next export continues."""
_DELIVER_IN_HASTE_S = 3.0
"""The same for a study that was interrupted by Ctrl-C."""
_EXPORT_OPENS_WITHIN_S = 10.0
"""How long the start of a study waits for an error that its tracking URI cannot be used at all."""

Ending = Literal["finished", "partly failed", "failed", "interrupted"]
_RECORDED_AS: Mapping[Ending, StudyStatus] = {
    "finished": "finished", "partly failed": "finished", "failed": "failed", "interrupted": "killed",
}


@dataclass(frozen=True)
class Trouble:
    """A trial that has not finished, and why, in one line. is_open: `--resume` continues it."""

    trial: str
    is_open: bool
    reason: str


@dataclass(frozen=True)
class StudyOutcome:
    """How a run of a study ended. counts: trials by status; `not begun` is an estimate. board: None if there is nothing
    to compare, see `remark`.

    page: the leaderboard as a web page, also among the files of the study's run in MLflow. troubles: trials that failed
    or were left open. stopped_by: why the run ended before the study did, None if it did not. undelivered: number of
    events that MLflow does not have. outage: why. attempts: all attempts in the log. experiment: the study's in MLflow,
    None if it is not exported.
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
    attempts: Sequence[Attempt] = ()
    experiment: str | None = None

    @property
    def was_interrupted(self) -> bool:
        """Whether there is work left for `--resume`."""
        return self.ending == "interrupted"


def run_study(
    prepared: PreparedStudy, *, resume: bool, retry_failed: bool, address: str | None, console: Console,
    confirming: Confirming | None = None, signals: Sequence[Signals] = SIGNALS,
) -> StudyOutcome:
    """Runs every promised trial of a study.

    One process may run a study, among all machines that share its home. A second process is refused. If another machine
    takes the study over, this run ends as interrupted. A new study begins once there is a cluster with room for its
    trials; a refused study leaves no files behind.

    address: of a running Ray cluster; None starts Ray on this machine unless RAY_ADDRESS is set. confirming: the trials
    to run again, of a study whose search is over (else UsageError); None: those that the study itself promises.
    signals: those that stop the run; their handlers are as before afterwards.
    """
    cluster_address(address)  # a wrong one is refused before anything is done
    spec, folder, stop = prepared.spec, prepared.folder, StopRequest(signals)
    with (
        held_home(folder, on_lost=stop.request) as held,
        sigterm_like_ctrl_c() if SIGTERM in signals else nullcontext(),
        _cleared_unless_begun(folder) as begun, ExitStack() as connected,
    ):
        def connect() -> None:
            """Connects to Ray. ConfigError if the cluster has no room for some trial."""
            copies = keep_plugins([*prepared.plugins, *plugins_of_stage(spec, folder)], folder)
            going_on = "--resume" if confirming is None else "the same command"
            farewell = f"nothing finished is lost, go on with {going_on} (results are in {folder})"
            connected.enter_context(ray_cluster(address, stop, farewell=farewell, modules=copies))
            _print(require_places(prepared), console)

        is_new = not any((folder / name).exists() for name in (LOG_FILE, _STUDY_FILE))
        if is_new:
            connect()
        else:
            begun()
        with study_records(prepared, held) as records, stop_watched(spec.study, stop):
            require_sampled(spec.study, records.writer.state)
            left_as = records.writer.state.status if confirming is not None else None
            records.exporter.wait_until_open(_EXPORT_OPENS_WITHIN_S)
            _open(records.writer, prepared, resume=resume)
            begun()
            with _left_as_it_was(records, left_as or "killed"):
                write_text(folder / _STUDY_FILE, dump_yaml(shown_plain(spec.to_plain())))
                held.keep()
                ledger = _ledger(prepared, records.writer, confirming, retry_failed=retry_failed)
                closed = [name for name, trial in ledger.trials.items() if trial.status in ("finished", "pruned")]
                held.forget_ended([prepared.trial_folder(name) for name in closed], records.log)
                if ledger.has_work():
                    _print([resumed_line(ledger)] if resume and ledger.trials else [], console)
                    if not is_new:
                        connect()
                    _place(prepared, ledger, records, held, stop, console)
                connected.close()
                ledger.interrupt()
                return _ended(prepared, records, ledger, stop, console)


def _ledger(
    prepared: PreparedStudy, writer: StudyWriter, confirming: Confirming | None, *, retry_failed: bool
) -> StudyLedger:
    """The study's trials, rebuilt from the log. UsageError if a search that is to be confirmed is not over."""
    spec, cells = prepared.spec, {cell.name: cell for cell in prepared.cells}
    ledger = StudyLedger(
        spec, prepared.cells, writer, confirming=confirming,
        refuses=lambda cell, configuration: refusal(spec, cells[cell], configuration),
    )
    ledger.recover(retry_failed=retry_failed)
    if confirming is not None and ledger.searching():
        raise UsageError(
            "VSE-S028", "study {study}: its search is not over in {cells}; finish it first: vsetune study run FILE "
            "--resume", study=spec.study, cells=", ".join(ledger.searching()),
        )
    return ledger


def _place(
    prepared: PreparedStudy, ledger: StudyLedger, records: StudyRecords, held: StudyHome, stop: StopRequest,
    console: Console,
) -> None:
    """Runs trials until the ledger is done or `stop` is requested. Ray must be connected."""
    with credentials_not_forwarded(), exported(ledger, backlog=records.exporter.pending, stop=stop) as metrics:
        place_trials(
            prepared, ledger, stop, console, metrics=metrics,
            forget=lambda trial_folder: held.forget_checkpoint(trial_folder, records.log),
            first_board=lambda: _first_board(prepared, records.writer),
        )


def _first_board(prepared: PreparedStudy, writer: StudyWriter) -> RenderableType | None:
    """The board of trials that have ended so far; None where they cannot be compared, or not be read now."""
    try:
        ended = [each for each in writer.attempts() if each.status != "running"]
        return render_table(board_of(prepared, ended, is_over=False), is_over=False)
    except (UsageError, StorageError):
        return None


def _ended(
    prepared: PreparedStudy, records: StudyRecords, ledger: StudyLedger, stop: StopRequest, console: Console
) -> StudyOutcome:
    """Writes the results, exports to MLflow, and returns how the study has ended."""
    study, ending, attempts = prepared.spec.study, _ending(ledger), records.writer.attempts()
    records.exporter.deliver(DELIVER_WITHIN_S)
    is_away = records.exporter.waiting() > 0
    results = write_results(prepared, attempts, is_over=ending != "interrupted")
    records.writer.finish_study(_RECORDED_AS[ending], kept_names(prepared.folder, results.files))
    undelivered = records.exporter.deliver(0.0 if is_away else DELIVER_WITHIN_S)
    if ending != "interrupted":
        _print(log_winners(prepared, attempts, is_exported=not undelivered), console)
    counts = Counter(trial.status if trial.is_closed else "open" for trial in ledger.trials.values())
    if ending == "interrupted" and ledger.promised() > len(ledger.trials):
        counts["not begun"] = ledger.promised() - len(ledger.trials)
    stopped_by = stop.reason or (ledger.outage if ending == "interrupted" else None)
    return StudyOutcome(
        counts, ending, results.board, results.page, results.remark, _troubles(ledger), stopped_by,
        undelivered, records.exporter.outage() or "it is slow", tuple(attempts), Studies().in_mlflow(study)[0],
    )


def _print(lines: Sequence[str], console: Console) -> None:
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _open(writer: StudyWriter, prepared: PreparedStudy, *, resume: bool) -> None:
    """Opens the study in the log. StudyConflict that names the file if the code of a plugin has changed since the study
    began."""
    known = writer.state.record
    require_free_seeds(writer, prepared)
    try:
        writer.open_study(prepared.record(known=known), resume=resume)
    except StudyConflict as error:
        change = changed_since(prepared.spec.study, prepared.folder, prepared.plugins)
        if change is None:
            raise
        raise StudyConflict(change) from error


def require_free_seeds(writer: StudyWriter, prepared: PreparedStudy) -> None:
    """StudyConflict if the study asks for more searches than before, and `study confirm` has used the seeds that these
    would get: searches that share seeds are not independent."""
    known = writer.state.record
    if known is None or repeats_of(known) >= prepared.spec.search.repeats:
        return
    own = {cell.name: cell.seeds for cell in prepared.cells}
    used = {each.start.seed for each in writer.attempts() if each.start.seed not in own.get(each.start.cell, ())}
    if used:
        raise StudyConflict(
            "VSE-S086", "study {study}: search.repeats: {repeats} would give further searches the seeds {seeds}, which "
            "study confirm has used; give the changed study another name", study=prepared.spec.study,
            repeats=prepared.spec.search.repeats, seeds=", ".join(map(str, sorted(used))),
        )


@contextmanager
def _cleared_unless_begun(folder: Path) -> Iterator[Callable[[], None]]:
    """Yields a function that marks the study as begun. An error before it is called restores the folder, so that a
    corrected study file meets no remains of a study that never began."""
    lock, before, begun = folder / LOCK_FILE, set(folder.iterdir()), False

    def begin() -> None:
        nonlocal begun
        begun = True

    try:
        yield begin
    except BaseException:
        if not begun:
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
def _left_as_it_was(records: StudyRecords, status: StudyStatus) -> Iterator[None]:
    """Records `status` for an opened study that cannot go on, so that it is not left as running. A finished study stays
    finished."""
    try:
        yield
    except StorageError:  # an interruption, or another machine has the study now
        raise
    except (UsageError, KeyboardInterrupt) as error:  # Ctrl-C before Ray has started, a second one, or at the end
        records.writer.finish_study(status)
        records.exporter.deliver(_DELIVER_IN_HASTE_S if isinstance(error, KeyboardInterrupt) else DELIVER_WITHIN_S)
        raise


def _ending(ledger: StudyLedger) -> Ending:
    if ledger.has_work():
        return "interrupted"
    failed = sum(trial.status == "failed" for trial in ledger.trials.values())
    if not failed:
        return "finished"
    return "failed" if failed == len(ledger.trials) else "partly failed"


def _troubles(ledger: StudyLedger) -> list[Trouble]:
    return [
        Trouble(name, not trial.is_closed, trial.error or "not started yet")
        for name, trial in ledger.trials.items() if trial.status == "failed" or not trial.is_closed
    ]


LOOK_EVERY_S = 5.0

_log = logging.getLogger(__name__)


@contextmanager
def stop_watched(
    study: str, stop: StopRequest, *, every_s: float = LOOK_EVERY_S, asked: Callable[[], str | None] | None = None
) -> Iterator[None]:
    """Inside the context, a thread looks for a new request and passes it on to `stop`.

    If the home cannot be read, the thread tries again; this is logged once. asked: reads the last request; None: from
    the study's folder.
    """
    ask = asked or (lambda: Studies().stop_asked(study))
    try:
        known = ask()
    except StorageError:  # an old request may then be followed, which is better than missing a new one
        known = None
    ended = threading.Event()
    watch = threading.Thread(
        target=_watch, args=(study, ask, known, stop, ended, every_s), name="stop-watch", daemon=True
    )
    watch.start()
    try:
        yield
    finally:
        ended.set()
        watch.join(timeout=1.0)


def _watch(
    study: str, ask: Callable[[], str | None], known: str | None, stop: StopRequest, ended: threading.Event,
    every_s: float,
) -> None:
    is_away = False
    while not ended.wait(every_s):
        try:
            request = ask()
        except Exception as error:  # the thread must survive to see a later request
            if not is_away:
                why = error if isinstance(error, StorageError) else f"{type(error).__name__}: {one_line(error)}"
                _log.warning("study %s: requests to stop it (vsetune study stop) cannot be read now: %s", study, why)
            is_away = True
            continue
        if is_away:
            _log.warning("study %s: requests to stop it can be read again", study)
        is_away = False
        if request is not None and request != known:
            stop.request(f"a request in its folder ({request})")
            return
