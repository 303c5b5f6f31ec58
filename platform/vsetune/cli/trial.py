"""`vsetune trial`: look at what single trials have learned."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from vsetune.cli import trial_results
from vsetune.cli.components import value_text
from vsetune.cli.options import Device, Run, Split, load_run
from vsetune.cli.output import interruptible, place_to_write, print_json, recall_table, results, say, scoring
from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.evaluation_settings import EvaluationSpec, GallerySpec
from vsetune.errors import DamagedCheckpoint, DataError, UsageError
from vsetune.storage.paths import home, remote_place
from vsetune.storage.whole_files import write_text

if TYPE_CHECKING:
    from vsetune.records.studies import Studies
    from vsetune.report.gallery.gallery_page import About
    from vsetune.study.recorded import RecordedAttempt
    from vsetune.training.trained import TrainedTrial

app = typer.Typer(
    no_args_is_help=True, help="Look at what single trials have learned.",
    epilog="Example: vsetune trial gallery quickstart/vsepp.lseh-c000-s0",
)
app.command("curves", epilog=trial_results.CURVES_EXAMPLE)(trial_results.curves)
app.command("model", epilog=trial_results.MODEL_EXAMPLE)(trial_results.model)
app.command("rerank", epilog=trial_results.RERANK_EXAMPLE)(trial_results.rerank)

_DEFAULTS = GallerySpec()


def _number(name: str, help_text: str) -> Any:
    """An option whose default and limits come from GallerySpec."""
    field = GallerySpec.model_fields[name]
    limits = {type(limit).__name__: limit for limit in field.metadata}
    return typer.Option(
        min=limits["Ge"].ge, max=limits["Le"].le if "Le" in limits else limits["Lt"].lt - 1,
        help=f"{help_text}; default: {getattr(_DEFAULTS, name)}",
    )


@app.command(epilog="Example: vsetune trial gallery quickstart/vsepp.lseh-c000-s0 --captions 12 --top 8")
def gallery(
    run: Run,
    split: Split = None,
    captions: Annotated[int | None, _number("captions", "captions sampled as queries")] = None,
    images: Annotated[int | None, _number("images", "images sampled as queries")] = None,
    top: Annotated[int | None, _number("top", "items shown of each ranking")] = None,
    written: Annotated[int | None, _number("written", "images with sentences that it writes, if it does")] = None,
    corrected: Annotated[int | None, _number("corrected", "wrong captions it corrects, likewise")] = None,
    seed: Annotated[int | None, _number("seed", "of the draw")] = None,
    output: Annotated[Path | None, place_to_write(help="page to write; default: under VSETUNE_HOME/galleries")] = None,
    device: Device = "auto",
) -> None:
    """Write a web page of what a trial's best network retrieves: queries with their top items, the hardest negatives
    of the split, and heat maps of where in the image it looks. Of a network that writes sentences (tags) also those,
    the words it finds wrong, and captions it corrects. The page is kept with the run, under gallery/."""
    from vsetune.report.gallery.gallery import make_gallery
    from vsetune.report.gallery.gallery_page import to_html
    from vsetune.storage.home_files import keep_in_home
    from vsetune.study.recorded import find_attempt
    from vsetune.training.evaluation import evaluated_split

    given = {
        "captions": captions, "images": images, "top": top, "written": written, "corrected": corrected, "seed": seed,
    }
    wanted = parse_spec(
        {name: value for name, value in given.items() if value is not None}, GallerySpec, where="trial gallery",
    )
    from vsetune.records.studies import Studies

    store = Studies()
    attempt = find_attempt(store, run, finished=True)
    with interruptible("nothing was written"):
        trained = load_run(store, attempt, device)
        chosen = split or evaluated_split(trained.trial.data, trained.dataset)
        trained.dataset.require_unchanged([chosen])
        with scoring(["scoring"]) as (report,):
            found = make_gallery(trained, chosen, wanted, report=report)
        page = output or home() / "galleries" / attempt.record.start.study / f"{_file_name(attempt, chosen)}.html"
        write_text(page, to_html(found, _about(attempt, trained)))
        keep_in_home(page)
    results.out(str(page.absolute()), highlight=False)
    store.keep_artifacts(attempt.record.attempt_id, [page], folder="gallery")
    say(f"kept with {attempt.where} as gallery/{page.name}")


@app.command(epilog="Example: vsetune trial ensemble all/sgraf_saf.lmh-c000-s0 all/sgraf_sgr.lmh-c000-s0")
def ensemble(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN", help="two or more, named as for `trial gallery`", show_default=False)
    ],
    split: Split = None,
    device: Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="the numbers as JSON")] = False,
) -> None:
    """Score a split by the mean of the scores of several trials' best networks, beside each of them alone: SGRAF is SAF
    with SGR, GSMN dense with sparse, SCAN both directions, VSRN two models."""
    from vsetune.study.recorded import find_attempt
    from vsetune.training.evaluation import evaluate_ensemble

    if len(runs) < 2:
        raise UsageError(f"trial ensemble: got {len(runs)} run, need at least two")
    from vsetune.records.studies import Studies

    store = Studies()
    attempts = [find_attempt(store, run, finished=True) for run in runs]
    with interruptible("nothing was written"):
        members = [load_run(store, attempt, device) for attempt in attempts]
        chosen = _common_split(attempts, members, split)
        _check_scores(attempts, members)
        plain = [
            (each.network, each.trial.model_copy(update={"evaluation": EvaluationSpec()})) for each in members
        ]
        with scoring([attempt.record.start.trial for attempt in attempts]) as reports:
            found = evaluate_ensemble(
                plain, members[0].dataset, chosen, device=members[0].device, reports=reports
            )
    names = [f"{attempt.record.start.study}/{attempt.record.start.trial}" for attempt in attempts]
    if as_json:
        rows = [
            {"run": attempt.record.attempt_id, "trial": name, **numbers}
            for attempt, name, numbers in zip(attempts, names, found.members, strict=True)
        ]
        print_json({"split": chosen, "members": rows, "ensemble": found.ensemble})
        return
    results.print(recall_table(
        f"recalls on {chosen}, per cent",
        [*zip(names, found.members, strict=True), ("ensemble", found.ensemble)], of="trial",
    ))


@app.command(epilog="Example: vsetune trial show quickstart/vsepp.lseh-c000-s0")
def show(
    run: Run,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="everything recorded, the curve too")] = False,
) -> None:
    """Print what a trial is: cell, seed, status, hyperparameters, best M-Recall, checkpoint, error."""
    from vsetune.records.studies import Studies
    from vsetune.study.recorded import find_attempt

    store = Studies()
    attempt = find_attempt(store, run, finished=False)
    with tempfile.TemporaryDirectory() as into:
        checkpoint = _checkpoint(store, attempt, Path(into))
    record, start = attempt.record, attempt.record.start
    if as_json:
        print_json({
            "run": record.attempt_id, "study": start.study, "trial": start.trial, "attempt": start.number,
            "cell": start.cell, "network": start.network, "loss": start.loss, "seed": start.seed, "phase": start.phase,
            "status": record.status, "configuration": dict(start.configuration), "summary": dict(record.summary),
            "curve": [list(point) for point in record.curve], "checkpoint": checkpoint, "error": record.error,
            "resolved": dict(start.resolved),
            "protocol": dict(start.protocol), "environment": dict(start.environment),
        })
        return
    table = Table(show_header=False, title=f"{start.study}/{start.trial}", title_justify="left")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _facts(attempt):
        table.add_row(name, value)
    table.add_row("checkpoint", checkpoint or "none left")
    if record.error:
        table.add_row("stopped by" if record.status == "pruned" else "error", record.error)
    results.print(table)


def _file_name(attempt: RecordedAttempt, split: str) -> str:
    start = attempt.record.start
    return f"{start.trial}-{split}" if start.number == 1 else f"{start.trial}-attempt{start.number}-{split}"


def _about(attempt: RecordedAttempt, trained: TrainedTrial) -> About:
    from vsetune.report.gallery.gallery_page import About

    start = attempt.record.start
    facts = [("run", attempt.record.attempt_id), *_facts(attempt)]
    return About(f"{start.study}/{start.trial}", start.network, start.loss, trained.dataset.manifest.name, facts)


def _facts(attempt: RecordedAttempt) -> list[tuple[str, str]]:
    """(name, value) pairs of what was trained and how it ended."""
    record, start = attempt.record, attempt.record.start
    best, at = record.summary.get("best_m_recall"), record.summary.get("epochs_to_best")
    if best is None and record.curve:
        at, best = max(record.curve, key=lambda point: point[1])
    return [
        ("cell", start.cell), ("seed", str(start.seed)), ("attempt", str(start.number)), ("phase", start.phase),
        ("status", record.status),
        ("searched", _settings(start.configuration) or "nothing"),
        *((part, _settings(start.resolved.get(part, {}))) for part in ("network", "loss", "training")),
        ("best M-Recall", "none yet" if best is None else f"{best:.2f} % (validation)"),
        ("epochs to best", "none yet" if at is None else f"{at:.2f}"),
        *((f"code of {key}", f"{sha256[:12]} (plugin)") for key, sha256 in start.resolved.get("plugins", {}).items()),
        ("data", str(start.resolved.get("data", {}).get("path", "unknown"))),
    ]


def _settings(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value_text(value)}" for name, value in values.items())


def _checkpoint(store: Studies, attempt: RecordedAttempt, into: Path) -> str | None:
    """Where the best weights are, here or on object storage, or why they cannot be used; None where they are gone.

    into: a folder that lasts for this call.
    """
    from vsetune.study.recorded import best_weights

    try:
        kept = best_weights(store, attempt, into)
    except DamagedCheckpoint as error:
        return str(error)
    return None if kept is None else remote_place(attempt.folder / kept.name) or str(kept)


def _common_split(attempts: Sequence[RecordedAttempt], members: Sequence[TrainedTrial], split: str | None) -> str:
    """UsageError unless all members were trained on the same data and are evaluated on the same split."""
    from vsetune.training.evaluation import evaluated_split

    first = members[0].dataset
    for attempt, member in zip(attempts, members, strict=True):
        if member.dataset.fingerprint != first.fingerprint:
            raise DataError(
                f"trial ensemble: {attempt.where} was trained on {member.dataset.path}, {attempts[0].where} on "
                f"{first.path}; need members of the same data set"
            )
    if len({attempt.record.attempt_id for attempt in attempts}) < len(attempts):
        raise UsageError("trial ensemble: a run is named twice, which changes nothing but its weight; name it once")
    splits = [evaluated_split(member.trial.data, member.dataset) for member in members]
    if split is None and len(set(splits)) > 1:
        found = ", ".join(f"{name} of {each.where}" for name, each in zip(splits, attempts, strict=True))
        raise UsageError(f"trial ensemble: members are evaluated on different splits ({found}); choose one by --split")
    first.require_unchanged([split or splits[0]])
    return split or splits[0]


def _check_scores(attempts: Sequence[RecordedAttempt], members: Sequence[TrainedTrial]) -> None:
    """UsageError for scores of different ranges, whose mean the widest range would dominate; a warning where it
    might."""
    kinds = [member.trial.network.score for member in members]
    if len(set(kinds)) > 1:
        found = ", ".join(f"{kind} of {each.where}" for kind, each in zip(kinds, attempts, strict=True))
        raise UsageError(
            f"trial ensemble: scores have different ranges ({found}), so their mean would follow the widest; need "
            "members whose scores are of one kind"
        )
    networks = sorted({member.trial.network.name for member in members})
    if kinds[0] in ("unbounded", "order") and len(networks) > 1:
        say(
            f"warning: scores of {', '.join(networks)} have no common range, the one with the widest spread counts most"
        )
