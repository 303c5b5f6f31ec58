"""The numbers of the best checkpoint, computed once at the end of a trial."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor

from vsetune.config.sources.data_set import DataSpec
from vsetune.config.spec.paths import under_home
from vsetune.config.study.training import TrialSpec
from vsetune.data.captions.relevance_lists import relevant_pairs
from vsetune.data.captions.semantic_sources import semantic_vectors_of, source_name
from vsetune.data.stored.dataset import Dataset
from vsetune.metrics.positives import Positives
from vsetune.metrics.protocols import COCO_TEST_1K, COCO_TEST_5K
from vsetune.metrics.rank_averages import rank_averages
from vsetune.metrics.recall import RetrievalScores, owner_scores
from vsetune.metrics.relevance import pair_scores
from vsetune.metrics.score_blocks import MeanScores, Scores
from vsetune.metrics.semantic_ranking import CaptionSemantics, semantic_ranking_distance
from vsetune.networks.network_base import Network
from vsetune.scoring.pair_scores import Report
from vsetune.scoring.validation import OnBatch, encode_split, evaluating, split_scores

PROTOCOLS = {protocol.name: protocol for protocol in (COCO_TEST_5K, COCO_TEST_1K)}
_SIZES = frozenset({"images", "captions", "folds"})  # the protocol says these once


def evaluated_split(data: DataSpec, dataset: Dataset) -> str:
    """The split that the best checkpoint is scored on: test where the data set has it, else validation."""
    has_test = data.test_split is not None and data.test_split in dataset.manifest.splits
    return data.test_split if has_test and data.test_split is not None else data.validation_split


def recalls(scores: RetrievalScores) -> dict[str, float]:
    """Recalls and ranks by name, without what the protocol says anyway."""
    return {name: value for name, value in scores.as_dict().items() if name not in _SIZES}


def evaluate(
    network: Network, dataset: Dataset, split: str, *, trial: TrialSpec, device: torch.device,
    report: Report | None = None, on_batch: OnBatch | None = None,
) -> dict[str, float]:
    """Recalls of the split and everything else that the trial's `evaluation` asks for, by name.

    report, on_batch: as in `score_split`. NumericError if any similarity is not finite; DataError when an external
    list or the folds do not fit the split.
    """
    with evaluating(network):
        encoded = encode_split(network, dataset, split, trial=trial, device=device, on_batch=on_batch)
        scores = split_scores(network, encoded, trial=trial, report=report)
        return recalls(owner_scores(scores, encoded.owner)) | _extras(scores, encoded.owner, dataset, split, trial)


@dataclass(frozen=True)
class EnsembleNumbers:
    """members: the numbers of each alone. ensemble: those of the mean of their scores."""

    members: list[dict[str, float]]
    ensemble: dict[str, float]


def evaluate_ensemble(
    members: Sequence[tuple[Network, TrialSpec]], dataset: Dataset, split: str, *, device: torch.device,
    reports: Sequence[Report | None] | None = None,
) -> EnsembleNumbers:
    """Recalls of the mean of the members' scores, as SGRAF has it of SAF and SGR. The first trial says what else.

    Scores are averaged as they are: members should give scores of the same range. Every pair is scored once by each
    network that scores pairs. reports: one for each member, as in `evaluate`. Errors as in `evaluate`.
    """
    with ExitStack() as stack:
        scores: list[Scores] = []
        for (network, trial), report in zip(members, reports or [None] * len(members), strict=True):
            stack.enter_context(evaluating(network))
            encoded = encode_split(network, dataset, split, trial=trial, device=device)
            scores.append(split_scores(network, encoded, trial=trial, report=report))
            owner = encoded.owner
            del encoded  # of a network that scores pairs, before the next one's items are made

        def numbers(ranked: Scores) -> dict[str, float]:
            return recalls(owner_scores(ranked, owner)) | _extras(ranked, owner, dataset, split, members[0][1])

        return EnsembleNumbers([numbers(each) for each in scores], numbers(MeanScores(scores)))


def _extras(scores: Scores, owner: Tensor, dataset: Dataset, split: str, trial: TrialSpec) -> dict[str, float]:
    wanted = trial.evaluation
    images, captions = scores.shape
    numbers: dict[str, float] = {}
    for name in wanted.protocols:
        found = recalls(PROTOCOLS[name].scores(scores, owner))
        numbers |= {f"{name}_{key}": value for key, value in found.items()}
    if wanted.positive_ranks:
        positives = Positives.of_owner(owner, images=images, captions=captions)
        numbers |= rank_averages(scores, positives).as_dict()
    if wanted.relevance is not None:
        pairs = relevant_pairs(dataset, split, under_home(wanted.relevance)).to(owner.device)
        listed = pair_scores(scores, pairs).as_dict()
        numbers |= {f"relevance_{name}": value for name, value in listed.items() if name not in _SIZES}
    if wanted.srd_at:
        numbers |= _semantic_ranking(scores, owner, dataset, split, trial)
    return numbers


def _semantic_ranking(
    scores: Scores, owner: Tensor, dataset: Dataset, split: str, trial: TrialSpec
) -> dict[str, float]:
    """SRD@k; the encoder is part of the name, because SRD by another encoder is another metric."""
    vectors = torch.tensor(semantic_vectors_of(dataset, trial.data, "encoder", split=split)).to(owner.device)
    semantics = CaptionSemantics(vectors, owner, images=scores.shape[0], image_score="max")
    encoder = source_name(trial.data, "encoder")
    numbers: dict[str, float] = {}
    for distance in semantic_ranking_distance(scores, semantics, trial.evaluation.srd_at):
        numbers |= {
            f"srd_{distance.k}_{encoder}": distance.value,
            f"srd_share_{distance.k}_{encoder}": distance.share,
            f"srd_tied_queries_{distance.k}_{encoder}": float(distance.tied_queries),
        }
    return numbers
