"""The numbers of the best checkpoint, computed once at the end of a trial."""

from __future__ import annotations

from pathlib import Path

import torch

from vsetune.config.paths import under_home
from vsetune.config.training import DataSpec, TrialSpec
from vsetune.data.dataset import Dataset
from vsetune.data.relevance import relevant_pairs
from vsetune.data.semantic_sources import semantic_vectors_of, source_name
from vsetune.metrics.positives import Positives
from vsetune.metrics.protocols import COCO_TEST_1K, COCO_TEST_5K
from vsetune.metrics.rank_averages import rank_averages
from vsetune.metrics.recall import RetrievalScores, retrieval_scores
from vsetune.metrics.relevance import relevance_scores
from vsetune.metrics.score_blocks import EmbeddingScores
from vsetune.metrics.semantic_ranking import CaptionSemantics, semantic_ranking_distance
from vsetune.networks import Network
from vsetune.training.validation import EncodedSplit, encode_split

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
    network: Network, dataset: Dataset, split: str, *, trial: TrialSpec, device: torch.device
) -> dict[str, float]:
    """Recalls of the split and everything else that the trial's `evaluation` asks for, by name.

    NumericError if any similarity is not finite; DataError when an external list or the folds do not fit the split.
    """
    encoded = encode_split(network, dataset, split, training=trial.training, device=device)
    with torch.no_grad():
        items = (encoded.images, encoded.captions, encoded.owner)
        numbers = recalls(retrieval_scores(*items, similarity=network.similarity))
        return numbers | _extras(encoded, network, dataset, split, trial)


def _extras(
    encoded: EncodedSplit, network: Network, dataset: Dataset, split: str, trial: TrialSpec
) -> dict[str, float]:
    wanted = trial.evaluation
    images, captions, owner, similarity = encoded.images, encoded.captions, encoded.owner, network.similarity
    numbers: dict[str, float] = {}
    for name in wanted.protocols:
        scores = PROTOCOLS[name].scores(images, captions, owner, similarity=similarity)
        numbers |= {f"{name}_{key}": value for key, value in recalls(scores).items()}
    if wanted.positive_ranks:
        positives = Positives.of_owner(owner, images=len(images), captions=len(captions))
        numbers |= rank_averages(EmbeddingScores(images, captions, similarity), positives).as_dict()
    if wanted.relevance is not None:
        pairs = relevant_pairs(dataset, split, Path(under_home(wanted.relevance))).to(owner.device)
        found = relevance_scores(images, captions, pairs, similarity=similarity).as_dict()
        numbers |= {f"relevance_{name}": value for name, value in found.items() if name not in _SIZES}
    if wanted.srd_at:
        numbers |= _semantic_ranking(encoded, network, dataset, split, trial)
    return numbers


def _semantic_ranking(
    encoded: EncodedSplit, network: Network, dataset: Dataset, split: str, trial: TrialSpec
) -> dict[str, float]:
    """SRD@k; the encoder is part of the name, because SRD by another encoder is another metric."""
    vectors = torch.tensor(semantic_vectors_of(dataset, trial.data, "encoder", split=split)).to(encoded.owner.device)
    semantics = CaptionSemantics(vectors, encoded.owner, images=len(encoded.images), image_score="max")
    scores = EmbeddingScores(encoded.images, encoded.captions, network.similarity)
    encoder = source_name(trial.data, "encoder")
    numbers: dict[str, float] = {}
    for distance in semantic_ranking_distance(scores, semantics, trial.evaluation.srd_at):
        numbers |= {
            f"srd_{distance.k}_{encoder}": distance.value,
            f"srd_share_{distance.k}_{encoder}": distance.share,
            f"srd_tied_queries_{distance.k}_{encoder}": float(distance.tied_queries),
        }
    return numbers
