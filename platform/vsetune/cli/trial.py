"""`vsetune trial`: look at what single trials have learned."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from vsetune.cli import trial_embed, trial_search
from vsetune.cli.options import (
    Device,
    Json,
    Run,
    Split,
    Tracking,
    found_attempts,
    load_run,
    place_to_write,
    tracking_of,
)
from vsetune.cli.output import (
    BAD_VALUE,
    coded,
    complain,
    inform,
    interruptible,
    print_json,
    recall_table,
    results,
    scoring,
    stderr,
    value_text,
)
from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.evaluation_settings import EvaluationSpec, GallerySpec, RerankSpec
from vsetune.errors import DamagedCheckpoint, DataError, Problem, UsageError
from vsetune.home.home_files import keep_in_home
from vsetune.home.paths import home, remote_place
from vsetune.home.whole_files import write_text
from vsetune.records.events import ValidationPoint
from vsetune.records.studies import Studies
from vsetune.study.places import tracking_uri as store_uri

if TYPE_CHECKING:
    from vsetune.board.gallery.gallery_page import About
    from vsetune.study.recorded import RecordedAttempt
    from vsetune.training.trained import TrainedTrial

app = typer.Typer(
    no_args_is_help=True, help="Look at what single trials have learned.",
    epilog="Example: vsetune trial gallery quickstart/vsepp.info_nce-c000-s0",
)
app.add_typer(trial_search.app)
app.add_typer(trial_embed.app)

_DEFAULTS = GallerySpec()


def _number(name: str, help_text: str) -> Any:
    """An option whose default and limits come from GallerySpec."""
    field = GallerySpec.model_fields[name]
    limits = {type(limit).__name__: limit for limit in field.metadata}
    return typer.Option(
        min=limits["Ge"].ge, max=limits["Le"].le if "Le" in limits else limits["Lt"].lt - 1,
        help=f"{help_text}; default: {getattr(_DEFAULTS, name)}",
    )


@app.command(epilog="Example: vsetune trial gallery quickstart/vsepp.info_nce-c000-s0 --captions 12 --top 8")
def gallery(
    run: Run,
    split: Split = None,
    captions: Annotated[int | None, _number("captions", "captions sampled as queries")] = None,
    images: Annotated[int | None, _number("images", "images sampled as queries")] = None,
    top: Annotated[int | None, _number("top", "items shown of each ranking")] = None,
    written: Annotated[int | None, _number("written", "images with sentences that it writes, if it does")] = None,
    seed: Annotated[int | None, _number("seed", "of the samples")] = None,
    output: Annotated[Path | None, place_to_write(help="page to write; default: under VSETUNE_HOME/galleries")] = None,
    device: Device = "auto",
) -> None:
    """Write a web page of what a trial's best network retrieves: queries with their top items, the hardest negatives
    of the split, and heat maps of where in the image it looks. For a network that writes sentences (tags) also
    these. The page is stored with the run, in gallery/."""
    from vsetune.board.gallery.gallery import make_gallery
    from vsetune.board.gallery.gallery_page import to_html
    from vsetune.data.stored.dataset import evaluated_split

    given = {"captions": captions, "images": images, "top": top, "written": written, "seed": seed}
    wanted = parse_spec(
        {name: value for name, value in given.items() if value is not None}, GallerySpec, where="trial gallery",
    )
    store, (attempt,) = found_attempts(run, finished=True)
    with interruptible("nothing was written"):
        trained = load_run(store, attempt, device)
        chosen = split or evaluated_split(trained.trial.data, trained.dataset)
        trained.dataset.require_unchanged([chosen])
        with scoring(["scoring"]) as (report,):
            found = make_gallery(trained, chosen, wanted, report=report)
        page = output or home() / "galleries" / attempt.record.start.study / f"{_file_name(attempt, chosen)}.html"
        write_text(page, to_html(found, _about(attempt, trained)))
        keep_in_home(page)
    results.out(str(page.absolute()))
    store.keep_artifacts(attempt.record.attempt_id, [page], folder="gallery")
    inform(f"stored with {attempt.where} as gallery/{page.name}")


@app.command(epilog="Example: vsetune trial ensemble all/sgraf_saf.lmh-c000-s0 all/sgraf_sgr.lmh-c000-s0")
def ensemble(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN", help="two or more, named as for `trial gallery`", show_default=False)
    ],
    split: Split = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Score a split by the mean of the scores of several trials' best networks, beside each of them alone: SGRAF is SAF
    with SGR, GSMN dense with sparse, SCAN both directions, VSRN two models."""
    from vsetune.training.evaluation import evaluate_ensemble

    if len(runs) < 2:
        raise UsageError(BAD_VALUE(option="trial ensemble", got=f"{len(runs)} run", need="at least two"))
    store, attempts = found_attempts(*runs, finished=True)
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
    names = _names(attempts)
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


@app.command(epilog="Example: vsetune trial show quickstart/vsepp.info_nce-c000-s0")
def show(run: Run, as_json: Json = False) -> None:
    """Print what a trial is: cell, seed, status, hyperparameters, best M-Recall, checkpoint, error."""
    store, (attempt,) = found_attempts(run, finished=False)
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
    table.add_row("checkpoint", coded(checkpoint) if checkpoint else "none left")
    if record.error:
        table.add_row("stopped by" if record.status == "pruned" else "error", record.error)
    results.print(table)


_OWN = ("step", "epoch", "pairs_seen", "m_recall", "train_seconds")


@app.command(epilog="Example: vsetune trial curves quickstart/vsepp.info_nce-c000-s0 --output curves.csv")
def curves(
    run: Run,
    output: Annotated[Path | None, place_to_write(help="CSV file to write; default: the terminal")] = None,
    as_json: Json = False,
) -> None:
    """Print every number of every validation of a trial as CSV: recalls, losses, rates, seconds, a line per validation.
    MLflow shows them too, or M-Recall alone where the study file has `tracking: {series: m_recall}`."""
    store, (attempt,) = found_attempts(run, finished=False)
    points = store.points(attempt.record.attempt_id)
    if as_json:
        print_json([asdict(point) for point in points])
        return
    text = _as_csv(points)
    if output is None:
        results.out(text, end="")
        return
    write_text(output, text)
    inform(f"written: {output.absolute()}")


def _as_csv(points: Sequence[ValidationPoint]) -> str:
    """A column for every number that any of the points has; empty where a point has not."""
    names = dict.fromkeys(name for point in points for name in point.metrics if name not in _OWN)
    file = io.StringIO()
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow([*_OWN, *names])
    for point in points:
        own = (getattr(point, name) for name in _OWN)
        rows.writerow([*own, *(point.metrics.get(name, "") for name in names)])
    return file.getvalue()


@app.command(epilog="Example: vsetune trial model quickstart/vsepp.info_nce-c000-s0 --index test --output my_model")
def model(
    run: Run,
    index: Annotated[str | None, typer.Option(
        help="split whose images and captions go along, encoded; default: none, the data set is searched at its place",
    )] = None,
    output: Annotated[
        Path | None, place_to_write(help="new folder for the model, instead of MLflow", show_default=False)
    ] = None,
    transformers: Annotated[bool, typer.Option(
        "--transformers", help="with --output: a folder that the library transformers loads; of a dual_encoder",
    )] = False,
    device: Device = "auto",
    tracking_uri: Tracking = None,
) -> None:
    """Log a trial's best network as an MLflow model, which `mlflow.pyfunc.load_model` loads and which takes captions or
    features of images. It carries weights, settings and vocabulary or tokeniser, so it works on another machine, where
    it searches its index. Prints the model's address. With --output the model is a folder, for `trial search`."""
    from vsetune.study.model_files import log_model, write_model
    from vsetune.study.transformers_folder import write_transformers_folder
    from vsetune.training.device import choose_device

    if transformers and output is None:
        raise UsageError("VSE-X140", "--transformers writes a folder; also give --output FOLDER")
    if transformers and output is not None:
        store, (attempt,) = found_attempts(run, finished=True)
        with stderr.status("writing the model"):
            write_transformers_folder(store, attempt, output)
        results.out(str(output.absolute()))
        return
    if output is not None:
        store, (attempt,) = found_attempts(run, finished=True)
        with stderr.status("writing the model"):
            write_model(store, attempt, output, index=index, device=choose_device(device))
        results.out(str(output.absolute()))
        return
    uri = store_uri(tracking_of(tracking_uri))
    store, (attempt,) = found_attempts(run, finished=True)
    if uri is None:
        raise UsageError(
            "VSE-X037", "{command}: no MLflow to log to; give --tracking-uri, or set MLFLOW_TRACKING_URI.",
            command="trial model",
        )
    from vsetune.records.mlflow_models import MlflowModels

    with tempfile.TemporaryDirectory() as into, stderr.status("logging the model"):
        models = MlflowModels(uri, store)
        address, is_new = log_model(models, store, attempt, Path(into), index=index, device=choose_device(device))
    results.out(address)
    inform("logged; it is among the models of the study in the MLflow UI" if is_new else "was logged before")


First = Annotated[str, typer.Argument(help="run that proposes, of a network that embeds", show_default=False)]
Second = Annotated[str, typer.Argument(help="run that decides, of a network that scores pairs", show_default=False)]
Top = Annotated[int, typer.Option(min=1, help="candidates proposed for every image and for every caption")]


@app.command(epilog="Example: vsetune trial rerank quickstart/vsepp.info_nce-c000-s0 pairs/scan.lmh-c000-s0 --top 20")
def rerank(
    first: First,
    second: Second,
    top: Top = RerankSpec.model_fields["top"].default,
    split: Split = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Score a split in two stages: a trial's network that embeds proposes the first candidates of every image and every
    caption, another trial's network that scores pairs decides among them. Prints the recalls of the first stage alone
    beside those of both. Runs are named as for `trial gallery`."""
    from vsetune.data.stored.dataset import evaluated_split
    from vsetune.metrics.score_blocks import check_top
    from vsetune.training.evaluation import evaluate_reranked
    from vsetune.training.reranking import FirstStage

    store, attempts = found_attempts(first, second, finished=True)
    with interruptible("nothing was written"):
        proposing, deciding = (load_run(store, attempt, device) for attempt in attempts)
        _check_roles(attempts, proposing, deciding)
        dataset = deciding.dataset
        chosen = split or evaluated_split(deciding.trial.data, dataset)
        check_top(top, images=dataset.split(chosen).images)
        dataset.require_unchanged([chosen])
        stage = FirstStage(proposing.network, proposing.trial, top=top)
        with scoring([attempts[1].record.start.trial]) as (report,):
            found = evaluate_reranked(
                stage, (deciding.network, deciding.trial), dataset, chosen, device=deciding.device, report=report
            )
    names = _names(attempts)
    pairs = dataset.split(chosen).images * dataset.split(chosen).captions
    if as_json:
        print_json({
            "split": chosen, "top": top, "proposed_pairs": found.proposed, "pairs": pairs,
            "first": {"run": attempts[0].record.attempt_id, "trial": names[0], **found.first},
            "reranked": {"run": attempts[1].record.attempt_id, "trial": names[1], **found.both},
        })
        return
    rows = [(names[0], found.first), (f"re-ranked by {names[1]}", found.both)]
    results.print(recall_table(f"recalls on {chosen}, per cent", rows, of="trial"))
    share = found.proposed / pairs
    inform(f"top {top} of every image and caption: {found.proposed:,} of {pairs:,} pairs scored ({share:.1%})")


def _file_name(attempt: RecordedAttempt, split: str) -> str:
    start = attempt.record.start
    return f"{start.trial}-{split}" if start.number == 1 else f"{start.trial}-attempt{start.number}-{split}"


def _about(attempt: RecordedAttempt, trained: TrainedTrial) -> About:
    from vsetune.board.gallery.gallery_page import About

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
        weights = best_weights(store, attempt, into)
    except DamagedCheckpoint as error:
        return error.problem
    return None if weights is None else remote_place(attempt.folder / weights.name) or str(weights)


def _common_split(attempts: Sequence[RecordedAttempt], members: Sequence[TrainedTrial], split: str | None) -> str:
    """UsageError unless all members were trained on the same data and are evaluated on the same split."""
    from vsetune.data.stored.dataset import evaluated_split

    first = members[0].dataset
    _check_data("trial ensemble", attempts, members)
    ids = [attempt.record.attempt_id for attempt in attempts]
    for attempt in ids:
        if ids.count(attempt) > 1:
            raise UsageError(
                "VSE-X041", "trial ensemble: {run} is named twice, which changes only its weight; name it once.",
                run=attempt,
            )
    splits = [evaluated_split(member.trial.data, member.dataset) for member in members]
    if split is None and len(set(splits)) > 1:
        found = ", ".join(f"{name} of {each.where}" for name, each in zip(splits, attempts, strict=True))
        raise UsageError(
            "VSE-X042", "trial ensemble: members are evaluated on different splits ({splits}); choose one by --split.",
            splits=found,
        )
    first.require_unchanged([split or splits[0]])
    return split or splits[0]


def _check_scores(attempts: Sequence[RecordedAttempt], members: Sequence[TrainedTrial]) -> None:
    """UsageError for scores of different ranges, whose mean the widest range would dominate; a warning where it
    might."""
    kinds = [member.trial.network.score for member in members]
    if len(set(kinds)) > 1:
        found = ", ".join(f"{kind} of {each.where}" for kind, each in zip(kinds, attempts, strict=True))
        raise UsageError(
            "VSE-X043", "trial ensemble: scores have different ranges ({scores}), so their mean would follow the "
            "widest; need members with scores of one kind.", scores=found,
        )
    networks = sorted({member.trial.network.name for member in members})
    if kinds[0] in ("unbounded", "order") and len(networks) > 1:
        complain("warning", Problem.of(
            "VSE-X044", "scores of {networks} have no common range; the one with the widest spread counts most.",
            networks=", ".join(networks),
        ))


def _check_roles(attempts: Sequence[RecordedAttempt], first: TrainedTrial, second: TrainedTrial) -> None:
    """UsageError unless the first embeds and the second scores pairs; DataError unless both are of one data set."""
    if first.network.kind == "score":
        raise UsageError(
            "VSE-X045", "trial rerank: {run} is of network {network}, which {does}; need a {stage} stage such as "
            "{example}.", run=attempts[0].where, network=first.trial.network.name, does="scores pairs", stage="first",
            example="vse_infinity, which embeds",
        )
    if second.network.kind != "score":
        raise UsageError(
            "VSE-X045", "trial rerank: {run} is of network {network}, which {does}; need a {stage} stage such as "
            "{example}.", run=attempts[1].where, network=second.trial.network.name, does="embeds", stage="second",
            example="scan, which scores pairs",
        )
    _check_data("trial rerank", attempts, [first, second])


def _check_data(command: str, attempts: Sequence[RecordedAttempt], members: Sequence[TrainedTrial]) -> None:
    """DataError unless all members were trained on the same data."""
    first = members[0].dataset
    for attempt, member in zip(attempts, members, strict=True):
        if member.dataset.fingerprint != first.fingerprint:
            raise DataError(
                "VSE-X040", "{command}: {first} was trained on {first_data}, {second} on {second_data}; need trials of "
                "the same data set.", command=command, first=attempts[0].where, first_data=first.path,
                second=attempt.where, second_data=member.dataset.path,
            )


def _names(attempts: Sequence[RecordedAttempt]) -> list[str]:
    return [f"{attempt.record.start.study}/{attempt.record.start.trial}" for attempt in attempts]
