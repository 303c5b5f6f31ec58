"""`vsetune trial curves`, `model` and `rerank`: what can be made of a recorded trial."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vsetune.cli.options import Device, Run, Split, Tracking, load_run, tracking_of
from vsetune.cli.output import interruptible, messages, place_to_write, print_json, recall_table, results, say, scoring
from vsetune.config.study.evaluation_settings import RerankSpec
from vsetune.errors import DataError, UsageError
from vsetune.storage.whole_files import write_text

if TYPE_CHECKING:
    from vsetune.records.events import ValidationPoint
    from vsetune.study.recorded import RecordedAttempt
    from vsetune.training.trained import TrainedTrial


CURVES_EXAMPLE = "Example: vsetune trial curves quickstart/vsepp.lseh-c000-s0 --output curves.csv"
_OWN = ("step", "epoch", "pairs_seen", "m_recall", "train_seconds")


def curves(
    run: Run,
    output: Annotated[Path | None, place_to_write(help="CSV file to write; default: the terminal")] = None,
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="one object per validation, as JSON")] = False,
) -> None:
    """Print every number of every validation of a trial as CSV: recalls, losses, rates, seconds, a line per validation.
    MLflow draws only M-Recall of them, unless the study file says `tracking: {series: all}`."""
    from vsetune.records.studies import Studies
    from vsetune.study.recorded import find_attempt

    store = Studies()
    points = store.points(find_attempt(store, run, finished=False).record.attempt_id)
    if as_json:
        print_json([asdict(point) for point in points])
        return
    text = as_csv(points)
    if output is None:
        results.out(text, end="", highlight=False)
        return
    write_text(output, text)
    say(f"written: {output.absolute()}")


def as_csv(points: Sequence[ValidationPoint]) -> str:
    """A column for every number that any of the points has; empty where a point has not."""
    names = dict.fromkeys(name for point in points for name in point.metrics if name not in _OWN)
    file = io.StringIO()
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow([*_OWN, *names])
    for point in points:
        own = (getattr(point, name) for name in _OWN)
        rows.writerow([*own, *(point.metrics.get(name, "") for name in names)])
    return file.getvalue()


MODEL_EXAMPLE = "Example: vsetune trial model quickstart/vsepp.lseh-c000-s0 --index test"


def model(
    run: Run,
    index: Annotated[str | None, typer.Option(
        help="split whose images and captions go along, encoded; default: none, the data set is searched at its place",
    )] = None,
    device: Device = "auto",
    tracking_uri: Tracking = None,
) -> None:
    """Log a trial's best network as an MLflow model, which `mlflow.pyfunc.load_model` asks with captions or features of
    images. It carries weights, settings and vocabulary or tokeniser, so it works on another machine; what it searches
    there is its index. Prints the model's address."""
    from vsetune.records.studies import Studies
    from vsetune.study.model_files import log_model
    from vsetune.study.places import tracking_uri as store_uri
    from vsetune.study.recorded import find_attempt
    from vsetune.training.device import choose_device

    store, uri = Studies(), store_uri(tracking_of(tracking_uri))
    attempt = find_attempt(store, run, finished=True)
    with tempfile.TemporaryDirectory() as into, messages.status("logging the model"):
        if uri is None:
            raise UsageError("trial model: no MLflow to log to; give --tracking-uri, or set MLFLOW_TRACKING_URI")
        from vsetune.records.mlflow_models import MlflowModels

        models = MlflowModels(uri, store)
        address, is_new = log_model(models, store, attempt, Path(into), index=index, device=choose_device(device))
    results.out(address, highlight=False)
    say("logged; it is among the models of the study in the MLflow UI" if is_new else "was logged before")


RERANK_EXAMPLE = "Example: vsetune trial rerank quickstart/vsepp.lseh-c000-s0 pairs/scan.lmh-c000-s0 --top 20"

First = Annotated[str, typer.Argument(help="run that proposes, of a network that embeds", show_default=False)]
Second = Annotated[str, typer.Argument(help="run that decides, of a network that scores pairs", show_default=False)]
Top = Annotated[int, typer.Option(min=1, help="candidates proposed for every image and for every caption")]


def rerank(
    first: First,
    second: Second,
    top: Top = RerankSpec.model_fields["top"].default,
    split: Split = None,
    device: Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="the numbers as JSON")] = False,
) -> None:
    """Score a split in two stages: a trial's network that embeds proposes the first candidates of every image and every
    caption, another trial's network that scores pairs decides among them. Recalls of the first stage alone stand beside
    those of both. Runs are named as for `trial gallery`."""
    from vsetune.metrics.score_blocks import check_top
    from vsetune.records.studies import Studies
    from vsetune.study.recorded import find_attempt
    from vsetune.training.evaluation import evaluate_reranked, evaluated_split
    from vsetune.training.reranking import FirstStage

    store = Studies()
    attempts = [find_attempt(store, run, finished=True) for run in (first, second)]
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
    names = [f"{attempt.record.start.study}/{attempt.record.start.trial}" for attempt in attempts]
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
    say(f"top {top} of every image and caption: {found.proposed:,} of {pairs:,} pairs scored ({share:.1%})")


def _check_roles(attempts: list[RecordedAttempt], first: TrainedTrial, second: TrainedTrial) -> None:
    """UsageError unless the first embeds and the second scores pairs; DataError unless both are of one data set."""
    if first.network.kind == "score":
        raise UsageError(
            f"trial rerank: {attempts[0].where} is of network {first.trial.network.name}, which scores pairs; need a "
            "first stage that embeds, such as vse_infinity"
        )
    if second.network.kind != "score":
        raise UsageError(
            f"trial rerank: {attempts[1].where} is of network {second.trial.network.name}, which embeds; need a second "
            "stage that scores pairs, such as scan"
        )
    if first.dataset.fingerprint != second.dataset.fingerprint:
        raise DataError(
            f"trial rerank: {attempts[0].where} was trained on {first.dataset.path}, {attempts[1].where} on "
            f"{second.dataset.path}; need both of the same data set"
        )
