"""Scores of a split: at every validation (`score_split`), and for the best weights at the end of a trial."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vsetune.config.study.evaluation_settings import CocoSpec
from vsetune.config.study.training import TrialSpec
from vsetune.data.captions.coco_judgements import judgements_of
from vsetune.data.captions.relevance_lists import relevant_pairs
from vsetune.data.captions.semantic_sources import semantic_vectors_of, source_name
from vsetune.data.stored.dataset import Dataset
from vsetune.errors import DataError
from vsetune.home.paths import under_home
from vsetune.metrics.positives import Positives
from vsetune.metrics.ranks import (
    PositiveRanks,
    RetrievalRanks,
    hit_at_k,
    map_at_r,
    positive_ranks,
    r_precision,
    rank_averages,
    retrieval_ranks,
)
from vsetune.metrics.recalls import (
    COCO_TEST_1K,
    COCO_TEST_5K,
    FIRST_CAPTION,
    RetrievalScores,
    owner_scores,
    pair_scores,
    recalls_among,
)
from vsetune.metrics.score_blocks import EmbeddingScores, MeanScores, PartOfScores, Scores
from vsetune.metrics.semantic_ranking import CaptionSemantics, semantic_ranking_distance
from vsetune.networks.network_base import Network, evaluating
from vsetune.training.processes import ALONE, Processes
from vsetune.training.reranking import FirstStage, reranked_scores
from vsetune.training.validation import OnBatch, Report, encode_split, split_scores

PROTOCOLS = {protocol.name: protocol for protocol in (COCO_TEST_5K, COCO_TEST_1K, FIRST_CAPTION)}
_SIZES = frozenset({"images", "captions", "folds"})  # stated once, in the protocol


def recalls(scores: RetrievalScores) -> dict[str, float]:
    """Recalls and ranks by name, without the fields that the protocol already has."""
    return {name: value for name, value in scores.as_dict().items() if name not in _SIZES}


def score_split(
    network: Network, dataset: Dataset, split: str, *, trial: TrialSpec, device: torch.device,
    images: int | None = None, first: FirstStage | None = None, report: Report | None = None,
    on_batch: OnBatch | None = None, processes: Processes = ALONE,
) -> RetrievalScores:
    """Recalls and ranks of the split. images: only this many of it, evenly spaced, with their captions.

    first: proposes the pairs that are scored; None: all pairs are. report: called with pairs scored and pairs in total,
    by networks that score pairs. on_batch: called after each encoded batch. processes: those that score it together,
    all with the same weights; each gets the result. NumericError if any similarity is not finite, DataError when there
    are fewer images than requested.
    """
    with evaluating(network):
        found = _scores(network, dataset, split, trial, device, images, first, report, on_batch, processes)
        return owner_scores(*found, among=processes)


def rank_split(
    network: Network, dataset: Dataset, split: str, *, trial: TrialSpec, device: torch.device,
    images: int | None = None, first: FirstStage | None = None,
) -> tuple[RetrievalRanks, Tensor]:
    """The ranks that `score_split` summarises, of all images and all captions, and the image of each caption, (M,)
    int64. Arguments and errors as there."""
    with evaluating(network):
        scores, owner = _scores(network, dataset, split, trial, device, images, first, None, None, ALONE)
        ranked, captions = scores.shape
        return retrieval_ranks(scores, Positives.of_owner(owner, images=ranked, captions=captions)), owner


def evaluate(
    network: Network, dataset: Dataset, split: str, *, trial: TrialSpec, device: torch.device,
    images: int | None = None, first: FirstStage | None = None, report: Report | None = None,
    on_batch: OnBatch | None = None, processes: Processes = ALONE,
) -> dict[str, float]:
    """Recalls of the split and all other scores that the trial's `evaluation` asks for, by name; with a first stage
    also its own recalls, `first_stage_...`.

    images, first, report, on_batch, errors: as in `score_split`, which the other `processes` call. DataError also when
    an external list or the folds do not fit the split, or need all of it.
    """
    whole = trial.evaluation.of_whole_split
    if images is not None and whole:
        raise DataError(
            "VSE-T016", "evaluation.{score}: needs the whole split {split}, got {images} of its images", score=whole[0],
            split=split, images=images,
        )
    with evaluating(network):
        scores, owner = _scores(network, dataset, split, trial, device, images, first, report, on_batch, processes)
        found = recalls(owner_scores(scores, owner, among=processes)) | _extras(scores, owner, dataset, split, trial)
        if first is None:
            return found
        alone = recalls(first.proposals(dataset, split, device=device, images=images).alone)
        return found | {f"first_stage_{name}": value for name, value in alone.items()}


@dataclass(frozen=True)
class RerankedNumbers:
    """first: the scores of the first stage alone. both: of both stages. proposed: pairs that the second stage
    scored."""

    first: dict[str, float]
    both: dict[str, float]
    proposed: int


def evaluate_reranked(
    first: FirstStage, second: tuple[Network, TrialSpec], dataset: Dataset, split: str, *, device: torch.device,
    report: Report | None = None,
) -> RerankedNumbers:
    """Recalls of the first stage on a split, and of the second stage on its proposals. Errors as in `evaluate`."""
    network, trial = second
    scores = score_split(network, dataset, split, trial=trial, device=device, first=first, report=report)
    proposals = first.proposals(dataset, split, device=device)
    return RerankedNumbers(recalls(proposals.alone), recalls(scores), proposals.pairs)


@dataclass(frozen=True)
class EnsembleNumbers:
    """members: the scores of each alone. ensemble: those of the mean of their similarities."""

    members: list[dict[str, float]]
    ensemble: dict[str, float]


def evaluate_ensemble(
    members: Sequence[tuple[Network, TrialSpec]], dataset: Dataset, split: str, *, device: torch.device,
    reports: Sequence[Report | None] | None = None,
) -> EnsembleNumbers:
    """Recalls of the mean of the members' scores, as SGRAF combines SAF and SGR. The settings of the first trial decide
    which other scores are computed.

    Scores are averaged unscaled: members should give scores of the same range. Every pair is scored once by each
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


def _scores(
    network: Network, dataset: Dataset, split: str, trial: TrialSpec, device: torch.device, images: int | None,
    first: FirstStage | None, report: Report | None, on_batch: OnBatch | None, processes: Processes,
) -> tuple[Scores, Tensor]:
    """The scores, to be read inside `evaluating`, and the image of each caption."""
    where: dict[str, Any] = {"device": device, "images": images, "on_batch": on_batch, "processes": processes}
    how: dict[str, Any] = {"trial": trial, "report": report, "processes": processes}
    proposals = None if first is None else first.proposals(dataset, split, **where)
    encoded = encode_split(network, dataset, split, trial=trial, every_caption=proposals is not None, **where)
    if proposals is None:
        return split_scores(network, encoded, **how), encoded.owner
    return reranked_scores(network, encoded, proposals, **how), encoded.owner


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
    if wanted.coco is not None:
        numbers |= _judged(scores, dataset, split, wanted.coco, owner.device)
    if wanted.srd_at:
        numbers |= _semantic_ranking(scores, owner, dataset, split, trial)
    return numbers


def _judged(
    scores: Scores, dataset: Dataset, split: str, wanted: CocoSpec, device: torch.device
) -> dict[str, float]:
    """`eccv_i2t_map_at_r`, `cxc_t2i_r5`, ...: in per cent, over the queries that the judgements have. `cxc_t2t_r1`,
    `cxc_i2i_r1`, ..., where captions are compared with captions and images with images, are of embeddings alone."""
    eccv, cxc = judgements_of(dataset, split, wanted)
    numbers: dict[str, float] = {}
    for way, pairs in enumerate(eccv or ()):
        ranks = _ranks_of_queries(scores, pairs.to(device), way)
        found = {"map_at_r": map_at_r(ranks), "r_precision": r_precision(ranks), "r1": hit_at_k(ranks, 1)}
        numbers |= {f"eccv_{('i2t', 't2i')[way]}_{name}": value for name, value in found.items()}
    if cxc is None:
        return numbers
    listed = pair_scores(scores, cxc.across.to(device)).as_dict()
    numbers |= {f"cxc_{name}": value for name, value in listed.items() if name not in _SIZES}
    if isinstance(scores, EmbeddingScores) and cxc.captions is not None and cxc.images is not None:
        for kind, own, pairs in (("t2t", scores.of_captions, cxc.captions), ("i2i", scores.of_images, cxc.images)):
            numbers |= {f"cxc_{kind}_{name}": value for name, value in recalls_among(own(), pairs.to(device)).items()}
    return numbers


def _ranks_of_queries(scores: Scores, pairs: Tensor, way: int) -> PositiveRanks:
    """Ranks of the positives of one direction, way 0: images are queries, 1: captions. Only queries with a pair are
    scored."""
    sides = [torch.arange(size, device=pairs.device) for size in scores.shape]
    sides[way], place = torch.unique(pairs[:, way], return_inverse=True)
    local = pairs.clone()
    local[:, way] = place
    images, captions = map(len, sides)
    positives = Positives.of_pairs(local, images=images, captions=captions)
    return positive_ranks(PartOfScores(scores, *sides), positives)[way]


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
