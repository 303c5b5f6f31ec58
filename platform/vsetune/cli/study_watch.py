"""`vsetune study list`, `show` and `stop`: studies on any machine, through the tracking store."""

from __future__ import annotations

import getpass
import socket
import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column

from vsetune.cli.options import Json, StudyName, flag
from vsetune.cli.output import FittingTable, coded, inform, interruptible, print_json, results, stderr
from vsetune.home.paths import home, remote_home
from vsetune.records.studies import Studies

if TYPE_CHECKING:
    from vsetune.study.observed import StudyView, TrialView

app = typer.Typer()

_STOPS_WITHIN_S = 150.0
_SILENT_AFTER_S = 900.0
_ENDED = ("finished", "failed")


@app.command("list", epilog="Example: vsetune study list")
def list_studies(as_json: Json = False) -> None:
    """List every study under VSETUNE_HOME with its progress and its cost."""
    views = _views(None)
    if as_json:
        print_json([_plain(view) for view in views])
        return
    if not views:
        inform(f"no studies in {remote_home() or home()}")
        return
    columns = (
        "study", "status", "trials", "running", Column("epochs", justify="right"),
        Column("device-hours", justify="right"), Column("cost", justify="right"), "last sign",
    )
    results.print(FittingTable(columns, [
        (
            view.name, _status(view), _share(view), str(view.counts.get("running", 0) or ""), f"{view.cost.epochs:.1f}",
            f"{view.cost.device_seconds / 3600:.2f}", _money(view.cost.usd), _ago(view.seen),
        )
        for view in views
    ]))


@app.command("show", epilog="Example: vsetune study show quickstart")
def show_study(
    study: StudyName,
    every: Annotated[bool, flag("--all", "trials that have ended as well")] = False,
    as_json: Json = False,
) -> None:
    """Show a study: its trials that run and where, its progress, its cost; changes nothing."""
    (view,) = _views(study)
    if as_json:
        print_json(_plain(view))
        return
    counts = ", ".join(f"{count} {_word(status)}" for status, count in sorted(view.counts.items())) or "none yet"
    lines = [
        f"{view.name}: {_status(view)}, last sign {_ago(view.seen)}",
        f"trials: {_share(view)} done ({counts})",
        f"cost: {view.cost.epochs:.1f} epochs, {view.cost.wasted_epochs:.1f} of them lost; "
        f"{view.cost.device_seconds / 3600:.2f} device-hours; {_money(view.cost.usd) or 'no prices'}{_unpriced(view)}",
    ]
    if view.stop_asked is not None:
        lines.append(f"last asked to stop: {view.stop_asked}")
    lines += [f"failed: {coded(why)}" for why in view.cannot_draw.values()]
    results.out("\n".join(lines))
    shown = [trial for trial in view.trials if every or trial.status in ("running", "killed")]
    if shown:
        results.print(_table_of(shown))


@app.command("stop", epilog="Example: vsetune study stop quickstart")
def stop_study(study: StudyName) -> None:
    """Ask the driver of a study, on any machine, to stop it once its trials have written their checkpoints.

    The request is left in the study's folder; `study run --resume`, or submitting it again, goes on. Exit code 0 when
    it has stopped, 1 when it has not within two minutes, which a trial that writes large checkpoints may need.
    """
    (view,) = _views(study)
    if view.status != "running":
        starting = "" if view.status in _ENDED else "; if it was resumed a moment ago repeat this in a minute"
        inform(f"study {study}: is not running ({_status(view)}), nothing to stop{starting}")
        return
    studies = Studies()
    moment = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    studies.ask_to_stop(study, f"{moment} UTC by {getpass.getuser()}@{socket.gethostname()}")
    with interruptible("the request stays, its driver will follow it"), stderr.status("asked its driver to stop"):
        until = time.monotonic() + _STOPS_WITHIN_S
        status = studies.status(study)
        while status == "running" and time.monotonic() < until:
            time.sleep(1.0)
            status = studies.status(study)
    if status == "running":
        inform(
            f"study {study}: asked to stop, and still running; last sign {_ago(studies.seen(study))}. If its driver "
            "has died nothing needs to stop: run it again with --resume"
        )
        raise typer.Exit(1)
    if status in _ENDED:
        inform(f"study {study}: has {status} meanwhile, so nothing was left to stop")
        return
    inform(f"study {study}: stopped; go on with --resume, or by submitting it again")


def _views(study: str | None) -> list[StudyView]:
    """The state of every study that can be read, or of one. UsageError for an unknown one."""
    from vsetune.study.observed import observe

    studies = Studies()
    if study is not None:
        return [observe(studies, studies.record(study))]
    records = {record.name: record for record in studies.studies()}
    return studies.readable(records, lambda name: observe(studies, records[name]))


def _table_of(trials: list[TrialView]) -> FittingTable:
    columns = (
        "trial", "is", Column("epoch", justify="right"), Column("best\nM-Recall", justify="right"),
        Column("device-\nhours", justify="right"), Column("cost", justify="right"), "where", "last sign",
        Column("because", overflow="fold"),
    )
    return FittingTable(columns, [_row(trial) for trial in trials])


def _row(trial: TrialView) -> list[str]:
    of = "" if trial.epochs is None else f" of {trial.epochs:g}"
    again = f" (attempt {trial.attempts})" if trial.attempts > 1 else ""
    return [
        trial.trial, f"{'open' if trial.status == 'killed' else trial.status}{again}", f"{trial.epoch:.2f}{of}",
        "" if trial.m_recall is None else f"{trial.m_recall:.2f}", f"{trial.device_seconds / 3600:.2f}",
        _money(trial.usd), trial.place, "" if trial.seen is None else _ago(trial.seen), (trial.error or "")[:200],
    ]


def _status(view: StudyView) -> str:
    """`killed` is an interrupted study; a running study without signs of life may have lost its driver."""
    status = _word(view.status)
    silent = status == "running" and time.time() - view.seen > _SILENT_AFTER_S
    return f"{status}, silent" if silent else status


def _word(status: str) -> str:
    return "interrupted" if status == "killed" else status


def _share(view: StudyView) -> str:
    return f"{view.closed} of {view.promised if view.promised is not None else '?'}"


def _money(usd: float | None) -> str:
    return "" if usd is None else f"${usd:,.2f}"


def _unpriced(view: StudyView) -> str:
    if view.cost.usd is None or not view.cost.unpriced_seconds:
        return ""
    return f", without {view.cost.unpriced_seconds / 3600:.2f} device-hours on nodes that have no price"


def _ago(moment: float) -> str:
    seconds = max(time.time() - moment, 0.0)
    for length, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def _plain(view: StudyView) -> dict[str, object]:
    return {
        "study": view.name, "status": view.status, "seen": view.seen, "stop_asked": view.stop_asked,
        "trials": {"promised": view.promised, **view.counts}, "epochs": view.cost.epochs,
        "wasted_epochs": view.cost.wasted_epochs, "device_seconds": view.cost.device_seconds, "usd": view.cost.usd,
        "unpriced_device_seconds": view.cost.unpriced_seconds, "cannot_draw": dict(view.cannot_draw),
        "each": [asdict(trial) for trial in view.trials],
    }
