"""Metrics: scores in, numbers out. Pure functions; a non-finite score is an error, never a rank.

An evaluation goes through score_blocks, positives -> ranks -> recall; a training curve through curves -> efficiency.
`vsetune.metrics.recall(scores)` is `recall.matrix_recalls`: the recalls of any matrix of scores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vsetune.config.callable_modules import make_callable, no_attribute, submodule

if TYPE_CHECKING:
    from vsetune.metrics.recall import RetrievalScores

    recall: Callable[..., RetrievalScores]


def _maker(name: str) -> Callable[..., Any] | None:
    def make(*args: Any, **options: Any) -> RetrievalScores:
        from vsetune.metrics.recall import matrix_recalls

        return matrix_recalls(*args, **options)

    return make if name == "recall" else None


def __getattr__(name: str) -> Any:
    found = None if name.startswith("_") else submodule(__name__, name)
    if found is None:
        raise no_attribute(__name__, name)
    return found


make_callable(__name__, _maker)
