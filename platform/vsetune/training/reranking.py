"""Two-stage ranking: a network that embeds proposes pairs of a split, a network that scores pairs ranks these (decision
0041)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vsetune.config.study.training import TrialSpec
from vsetune.data.stored.dataset import Dataset
from vsetune.metrics.recalls import RetrievalScores, owner_scores
from vsetune.metrics.score_blocks import RerankedScores, Scores, check_top, proposed_pairs
from vsetune.networks.network_base import Network, evaluating
from vsetune.training.processes import ALONE, Processes
from vsetune.training.validation import EncodedSplit, OnBatch, Report, encode_split, proposed_pair_scores, split_scores


@dataclass(frozen=True)
class Proposals:
    """The result of a first stage on a split. scores: (N, M), of every pair; to be read inside `evaluating`.

    proposed: (N, M) bool. alone: the retrieval results of the first stage.
    """

    scores: Scores
    proposed: Tensor
    alone: RetrievalScores

    @property
    def pairs(self) -> int:
        """Number of proposed pairs."""
        return int(self.proposed.sum())


class FirstStage:
    """A trained network that embeds, and its proposals for each split, cached because it no longer changes.

    network: on its device, in evaluation mode. trial: of the network. top: as for `proposed_pairs`.
    """

    def __init__(self, network: Network, trial: TrialSpec, *, top: int) -> None:
        self.network, self.trial, self.top = network, trial, top
        self._found: dict[tuple[str, str, int | None], Proposals] = {}

    def proposals(
        self, dataset: Dataset, split: str, *, device: torch.device, images: int | None = None,
        on_batch: OnBatch | None = None, processes: Processes = ALONE,
    ) -> Proposals:
        """The proposals for a split, or for `images` images of it. on_batch: called after each encoded batch.
        processes: those that encode and rank it together.

        DataError unless `top` is from 1 to the number of ranked images. NumericError if any score is not finite.
        """
        key = dataset.path, split, images
        if key not in self._found:
            check_top(self.top, images=images or dataset.split(split).images)
            with evaluating(self.network):
                encoded = encode_split(
                    self.network, dataset, split, trial=self.trial, device=device, images=images, on_batch=on_batch,
                    processes=processes,
                )
                scores = split_scores(self.network, encoded, trial=self.trial)
                proposed = proposed_pairs(scores, self.top)
                self._found[key] = Proposals(scores, proposed, owner_scores(scores, encoded.owner, among=processes))
        return self._found[key]


def reranked_scores(
    network: Network, encoded: EncodedSplit, proposals: Proposals, *, trial: TrialSpec, report: Report | None = None,
    processes: Processes = ALONE,
) -> Scores:
    """The combined scores of both stages, see `RerankedScores`. network, encoded, trial: of the second stage, as for
    `split_scores`. Only the proposed pairs are scored, each once, under the same bound on memory; with several
    processes each scores those of some images."""
    items = encoded.images, encoded.captions, encoded.places
    is_own = torch.arange(len(encoded.images), device=encoded.images.device) % processes.count == processes.number
    own = proposed_pair_scores(
        network, *items, proposals.proposed & is_own[:, None], cost=trial.network.pair_cost, report=report
    )
    return RerankedScores(proposals.scores, proposals.proposed, processes.total(own))
