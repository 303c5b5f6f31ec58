"""How long one validation takes: the real one, or of a part of the split, scaled to the whole."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from vsetune.config.study.training import TrialSpec
from vsetune.data.stored.dataset import Dataset
from vsetune.metrics.recall import owner_scores
from vsetune.networks.encoded import Encoded
from vsetune.networks.evaluation_mode import evaluating
from vsetune.networks.network_base import Network
from vsetune.scoring.device import wait_for
from vsetune.scoring.pair_scores import CostOfPair, pair_scores
from vsetune.scoring.validation import EncodedSplit, encode_split, split_scores


@dataclass(frozen=True)
class ValidationTimes:
    """Seconds of the whole split, or of the part of it that trials validate on: encoding grows with its items, scoring
    with its pairs.

    encoded_share, scored_share: of items and of pairs that were really timed, 1 for all.
    """

    encoding: float
    scoring: float
    encoded_share: float
    scored_share: float


class _Enough(Exception):
    """The time for scoring is used up."""


def time_validation(
    network: Network, dataset: Dataset, trial: TrialSpec, device: torch.device, *, seconds: float
) -> ValidationTimes:
    """Validates once, for about so many seconds: at most half of them to encode, the rest to score; one batch and one
    block are always finished. NumericError if a similarity is not finite."""
    split, chosen = dataset.split(trial.data.validation_split), trial.evaluation.validation_images
    all_images = min(chosen or split.images, split.images)
    all_captions = split.captions * all_images / split.images
    with evaluating(network):
        begin = time.perf_counter()
        encoded = encode_split(
            network, dataset, trial.data.validation_split, trial=trial, device=device, images=chosen,
            enough=lambda: time.perf_counter() - begin > seconds / 2,
        )
        wait_for(device)
        encoding = time.perf_counter() - begin
        images, captions = len(encoded.images), len(encoded.owner)
        begin = time.perf_counter()
        share = _score(network, encoded, trial, seconds=max(seconds / 2, seconds - encoding))
        wait_for(device)
        scoring = time.perf_counter() - begin
    items = (images + captions) / (all_images + all_captions)
    pairs = share * (images / all_images) * (captions / all_captions)
    return ValidationTimes(encoding / items, scoring / pairs, encoded_share=items, scored_share=pairs)


def _score(network: Network, encoded: EncodedSplit, trial: TrialSpec, *, seconds: float) -> float:
    """Scores and ranks what was encoded; the share of this work that was done when the time was up.

    The ranks of a network that scores pairs are left out: they take less than one in a thousand of its scores.
    """
    if network.kind != "score":
        owner_scores(split_scores(network, encoded, trial=trial), encoded.owner)
        return 1.0
    return score_some(network, encoded.images, encoded.captions, cost=trial.network.pair_cost, seconds=seconds)


def score_some(
    network: Network, images: Encoded, groups: Sequence[Encoded], *, cost: CostOfPair, seconds: float
) -> float:
    """Scores pairs until the time is up, at least one block; the share of the arithmetic that was done, 1 for all.

    Groups hold captions of similar length, shortest first: some from everywhere are scored, not the cheap ones.
    """
    begin = time.perf_counter()
    works = [cost(regions=images.vectors.shape[1], words=group.vectors.shape[1]).flops for group in groups]
    whole = sum(work * len(group) for work, group in zip(works, groups, strict=True)) * len(images)
    done, in_group = 0.0, 0

    def report(pairs: int, _: int) -> None:
        nonlocal in_group
        in_group = pairs
        if time.perf_counter() - begin > seconds:
            raise _Enough

    for number in spread(len(groups)):
        group, in_group = groups[number], 0
        try:
            pair_scores(network, images, [group], torch.arange(len(group), device=group.vectors.device), cost=cost,
                        report=report)
        except _Enough:
            return (done + in_group * works[number]) / whole
        done += in_group * works[number]
    return 1.0


def spread(count: int) -> Iterator[int]:
    """0 to count - 1, the middle first, then the middles of what lies beside it: any first few are from everywhere."""
    parts = [(0, count)]
    for low, high in parts:
        if low < high:
            middle = (low + high) // 2
            yield middle
            parts += [(low, middle), (middle + 1, high)]
