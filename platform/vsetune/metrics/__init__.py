"""Metrics: scores in, numbers out. Pure functions; a non-finite score is an error, never a rank.

ranks -> recall is the way of an evaluation; curves -> efficiency the way of a training curve.
"""

from vsetune.metrics.curves import (
    BaselineFlags,
    BestPoint,
    Curve,
    baseline_flags,
    best_of_curve,
    check_same_cadence,
    check_same_protocol,
    resolution,
    without_replays,
)
from vsetune.metrics.efficiency import (
    Difference,
    Epochs,
    MeanDifference,
    SeedDifference,
    difference_of_curves,
    difference_over_seeds,
    difference_percent,
    epochs_to_best,
    epochs_to_target,
    mean_difference,
)
from vsetune.metrics.hard_negatives import UniqueHardNegatives, expected_if_random, unique_hard_negatives
from vsetune.metrics.ranks import RANKING_PROTOCOL
from vsetune.metrics.recall import RetrievalScores, fold_scores, matrix_scores, retrieval_scores

__all__ = [
    "RANKING_PROTOCOL", "BaselineFlags", "BestPoint", "Curve", "Difference", "Epochs", "MeanDifference",
    "RetrievalScores", "SeedDifference", "UniqueHardNegatives", "baseline_flags", "best_of_curve",
    "check_same_cadence", "check_same_protocol", "difference_of_curves", "difference_over_seeds",
    "difference_percent", "epochs_to_best", "epochs_to_target", "expected_if_random", "fold_scores", "matrix_scores",
    "mean_difference", "resolution", "retrieval_scores", "unique_hard_negatives", "without_replays",
]
