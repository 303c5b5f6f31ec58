"""Metrics: scores in, numbers out. Pure functions; a non-finite score is an error, never a rank.

An evaluation goes through score_blocks, positives -> ranks -> recall; a training curve through curves -> efficiency.
Names of the former need torch and are loaded at their first use, which saves a leaderboard 200 MB.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vsetune.metrics.curves import (
    BestPoint,
    Curve,
    best_of_curve,
    check_same_cadence,
    check_same_protocol,
    mean_curve,
    resolution,
)
from vsetune.metrics.efficiency import (
    Difference,
    LineFit,
    SeedDifference,
    chance_m_recall,
    difference_of_curves,
    difference_over_seeds,
    difference_percent,
    epochs_to_best,
    epochs_to_target,
    fit_seconds,
    is_collapsed,
)
from vsetune.metrics.seed_statistics import (
    Epochs,
    EpochsOverSeeds,
    curve_noise,
    epochs_over_seeds,
    holm,
    improvement_interval,
    kaplan_meier,
    kaplan_meier_median,
    mean_interval,
    median_interval,
    noise_tolerance,
    paired_t,
    seeds_to_decide,
    sign_test,
    still_rises,
)

if TYPE_CHECKING:
    from vsetune.metrics.hard_negatives import UniqueHardNegatives, expected_if_random, unique_hard_negatives
    from vsetune.metrics.positives import Positives
    from vsetune.metrics.ranks import RANKING_PROTOCOL, RankAverages, rank_averages
    from vsetune.metrics.recall import (
        COCO_TEST_1K,
        COCO_TEST_5K,
        RankingProtocol,
        RelevanceScores,
        RetrievalScores,
        fold_scores,
        matrix_scores,
        relevance_matrix_scores,
        relevance_scores,
        retrieval_scores,
    )
    from vsetune.metrics.score_blocks import EmbeddingScores, MatrixScores, MeanScores, PartOfScores, Scores
    from vsetune.metrics.semantic_ranking import CaptionSemantics, SemanticRankingDistance, semantic_ranking_distance

__all__ = [
    "COCO_TEST_1K", "COCO_TEST_5K", "RANKING_PROTOCOL", "BestPoint", "CaptionSemantics", "Curve",
    "Difference", "EmbeddingScores", "Epochs", "EpochsOverSeeds", "LineFit", "MatrixScores",
    "MeanScores", "PartOfScores", "Positives", "RankAverages", "RankingProtocol", "RelevanceScores",
    "RetrievalScores", "Scores", "SeedDifference", "SemanticRankingDistance", "UniqueHardNegatives",
    "best_of_curve", "chance_m_recall", "check_same_cadence", "check_same_protocol", "curve_noise",
    "difference_of_curves", "difference_over_seeds", "difference_percent", "epochs_over_seeds", "epochs_to_best",
    "epochs_to_target", "expected_if_random", "fit_seconds", "fold_scores", "holm", "improvement_interval",
    "is_collapsed", "kaplan_meier", "kaplan_meier_median", "matrix_scores", "mean_curve", "mean_interval",
    "median_interval", "noise_tolerance", "paired_t", "rank_averages", "relevance_matrix_scores",
    "relevance_scores", "resolution", "retrieval_scores", "seeds_to_decide", "semantic_ranking_distance",
    "sign_test", "still_rises", "unique_hard_negatives",
]

_WITH_TORCH = {
    "hard_negatives": ("UniqueHardNegatives", "expected_if_random", "unique_hard_negatives"),
    "positives": ("Positives",),
    "ranks": ("RANKING_PROTOCOL", "RankAverages", "rank_averages"),
    "recall": (
        "COCO_TEST_1K", "COCO_TEST_5K", "RankingProtocol", "RelevanceScores", "RetrievalScores", "fold_scores",
        "matrix_scores", "relevance_matrix_scores", "relevance_scores", "retrieval_scores",
    ),
    "score_blocks": ("EmbeddingScores", "MatrixScores", "MeanScores", "PartOfScores", "Scores"),
    "semantic_ranking": ("CaptionSemantics", "SemanticRankingDistance", "semantic_ranking_distance"),
}
"""Names by module. No module may share a name with them, because loading a module binds its name in this package."""
_MODULE_OF = {name: module for module, names in _WITH_TORCH.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load a name that needs torch at its first use."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
