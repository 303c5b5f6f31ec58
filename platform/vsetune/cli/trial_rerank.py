"""`vsetune trial rerank`: a network that scores pairs ranks the proposals of a network that embeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from vsetune.cli.output import interruptible, print_json, results, say
from vsetune.cli.recorded_runs import Device, Split, load_run
from vsetune.cli.scoring import recall_table, scoring
from vsetune.config.study.evaluation_settings import RerankSpec
from vsetune.errors import DataError, UsageError

if TYPE_CHECKING:
    from vsetune.jobs.recorded import RecordedAttempt
    from vsetune.training.trained import TrainedTrial

EXAMPLE = "Example: vsetune trial rerank quickstart/vsepp.lseh-c000-s0 pairs/scan.lmh-c000-s0 --top 20"

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
    from vsetune.jobs.recorded import find_attempt
    from vsetune.metrics.reranked_scores import check_top
    from vsetune.records.studies import Studies
    from vsetune.scoring.evaluation import evaluate_reranked, evaluated_split
    from vsetune.scoring.reranking import FirstStage

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
