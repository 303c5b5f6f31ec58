"""What metrics refuse: scores that are not finite, indices and shapes that do not fit, comparisons of unlike curves."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from refusals import refused
from torch import Tensor
from whole_scores import fold_scores, matrix_scores, relevance_matrix_scores

from vsetune.metrics.best_of_k import best_after_epochs, best_after_trials, best_with_replacement, tuning_curves
from vsetune.metrics.curves import best_of_curve, check_same_protocol
from vsetune.metrics.efficiency import difference_of_curves, difference_over_seeds, difference_percent
from vsetune.metrics.hard_negatives import unique_hard_negatives
from vsetune.metrics.positives import Positives
from vsetune.metrics.ranks import rank_averages, retrieval_ranks
from vsetune.metrics.recalls import COCO_TEST_1K, owner_scores, recall
from vsetune.metrics.score_blocks import EmbeddingScores, MatrixScores, RerankedScores, proposed_pairs
from vsetune.metrics.seed_statistics import Epochs
from vsetune.metrics.semantic_ranking import CaptionSemantics, semantic_ranking_distance

SCORES = torch.arange(18.0).reshape(3, 6) / 20
OWNER = torch.tensor([0, 0, 1, 1, 1, 2])
ALL = torch.ones(3, 6, dtype=torch.bool)
POSITIVES = Positives.of_owner(OWNER, images=3, captions=6)
BOTH = "retrieval image_to_text and text_to_image"
PROTOCOL = {"validate_every_steps": 500, "images": 1000}


def product(rows: Tensor, columns: Tensor) -> Tensor:
    return rows @ columns.T


def srd(network: Tensor, semantic: Tensor, ks: list[int], scores_per_band: int = 10**6) -> object:
    return semantic_ranking_distance(MatrixScores(network), MatrixScores(semantic), ks, scores_per_band=scores_per_band)


def reranked(second: Tensor) -> object:
    return owner_scores(RerankedScores(MatrixScores(SCORES), ALL, second), OWNER)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(("use", "where"), [
    (lambda scores: retrieval_ranks(MatrixScores(scores), POSITIVES, block_shape=(2, 4)), BOTH),
    (lambda scores: retrieval_ranks(MatrixScores(scores), POSITIVES), BOTH),
    (lambda scores: rank_averages(MatrixScores(scores), POSITIVES), BOTH), (reranked, BOTH),
    (lambda scores: proposed_pairs(MatrixScores(scores), 1), "first stage"),
    (lambda scores: unique_hard_negatives(scores, ALL, active_images=None, active_captions=None), "hard negatives"),
    (lambda scores: srd(scores, SCORES, [1], 4), "SRD network"),
    (lambda scores: srd(SCORES, scores, [1]), "SRD semantics"),
])
def test_scores_that_are_not_finite_are_refused_with_their_count(
    use: Callable[[Tensor], object], where: str, value: float
) -> None:
    scores = SCORES.clone()
    scores[0, 0] = scores[0, 3] = scores[2, 1] = value  # the first one is a positive
    with refused("VSE-M001", where=where, broken=3, count=18):
        use(scores)


def ids(*values: float) -> Tensor:
    return torch.tensor(values)


REFUSED: list[tuple[Callable[[], object], str, dict[str, Any]]] = [
    (lambda: matrix_scores(SCORES, OWNER[1:]), "VSE-M403", {"what": "owners", "got": "(5,)", "need": "(6,)"}),
    (lambda: matrix_scores(SCORES, ids(0, 0, 1, 1, 1, 3)), "VSE-M003",
     {"what": "owners", "low": 0, "high": 3, "most": 2}),
    (lambda: matrix_scores(SCORES, ids(-1, 0, 1, 1, 1, 2)), "VSE-M003", {"what": "owners", "low": -1, "high": 2}),
    (lambda: matrix_scores(SCORES, OWNER.float()), "VSE-M404", {"what": "owners", "got": "torch.float32"}),
    (lambda: matrix_scores(SCORES, ids(0, 0, 1, 1, 1, 1)), "VSE-M008", {"images": 1}),
    (lambda: matrix_scores(SCORES[:0, :0], OWNER[:0]), "VSE-M007", {"images": 0, "captions": 0}),
    (lambda: recall(SCORES[:, :5]), "VSE-M016", {"images": 3, "captions": 5}),
    (lambda: relevance_matrix_scores(SCORES, torch.zeros(0, 2, dtype=torch.int64)), "VSE-M403", {"got": "(0, 2)"}),
    (lambda: relevance_matrix_scores(SCORES, torch.tensor([[3, 0]])), "VSE-M003",
     {"what": "image indices", "low": 3, "high": 3, "most": 2}),
    (lambda: relevance_matrix_scores(SCORES, torch.tensor([[0, 6], [0, 1]])), "VSE-M003",
     {"what": "caption indices", "low": 1, "high": 6, "most": 5}),
    (lambda: relevance_matrix_scores(SCORES, torch.tensor([[-1, 0]])), "VSE-M003",
     {"what": "image indices", "low": -1}),
    (lambda: relevance_matrix_scores(SCORES, ids(0, 1)), "VSE-M403", {"got": "(2,)"}),
    (lambda: relevance_matrix_scores(SCORES, torch.tensor([[0.0, 1.0]])), "VSE-M404", {"got": "torch.float32"}),
    (lambda: fold_scores(torch.eye(4), torch.eye(4), torch.arange(4), similarity=product, folds=3), "VSE-M009",
     {"images": 4, "folds": 3}),
    (lambda: COCO_TEST_1K.scores(EmbeddingScores(torch.eye(9), torch.eye(9), product), torch.arange(9)), "VSE-M010",
     {"protocol": "coco_test_1k", "images": 9, "need": 5000}),
    (lambda: proposed_pairs(MatrixScores(SCORES), 0), "VSE-M011", {"top": 0, "images": 3}),
    (lambda: proposed_pairs(MatrixScores(SCORES), 4), "VSE-M011", {"top": 4, "images": 3}),
    (lambda: srd(SCORES, SCORES.T, [1]), "VSE-M012", {"network": (3, 6), "semantic": (6, 3)}),
    *((lambda ks=ks: srd(SCORES, SCORES, ks), "VSE-M013", {"ks": shown, "images": 3})
      for ks, shown in (([4], "4"), ([0], "0"), ([], ""))),
    (lambda: CaptionSemantics(torch.tensor([[1.0], [math.nan]]), torch.arange(2), images=2, image_score="max"),
     "VSE-M002", {"broken": 1, "count": 2}),
    (lambda: difference_of_curves([(1.0, 40), (2.0, 50)], [(0.5, 40), (1.0, 50)]), "VSE-M015",
     {"first": 1.0, "second": 0.5}),
    *((lambda other=other: check_same_protocol(PROTOCOL, other), "VSE-M014", {"differences": differences})
      for other, differences in (
          (PROTOCOL | {"images": 1014}, "images is 1000 in one and 1014 in the other"),
          ({"images": 1000}, "validate_every_steps is 500 in one and absent in the other"),
          (PROTOCOL | {"folds": None}, "folds is absent in one and None in the other"),
      )),
]


@pytest.mark.parametrize(("call", "code", "fields"), REFUSED, ids=[f"{code} {fields}" for _, code, fields in REFUSED])
def test_what_does_not_fit_is_refused(call: Callable[[], object], code: str, fields: dict[str, Any]) -> None:
    with refused(code, **fields):
        call()
    check_same_protocol(PROTOCOL, dict(PROTOCOL))


@pytest.mark.parametrize("call", [
    lambda: best_after_trials([]), lambda: best_after_trials([1.0], [2]), lambda: best_after_epochs([], [1]),
    lambda: best_with_replacement([1.0], 0), lambda: tuning_curves([]), lambda: best_of_curve([]),
    lambda: difference_over_seeds([]),
    *(lambda epochs=epochs: difference_percent(Epochs(1, censored=False), epochs) for epochs in (0.0, -1.0, math.nan)),
])
def test_what_cannot_be_counted_is_no_number(call: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"need|got no points|no seed pairs"):
        call()
