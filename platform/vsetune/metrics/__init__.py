"""Metrics: scores in, numbers out. Pure functions; a non-finite score is an error, never a rank.

An evaluation goes through score_blocks, positives -> ranks -> recalls; a training curve through curves -> efficiency.
`vsetune.metrics.recall(scores)` gives the recalls of any matrix of scores.
"""

from typing import TYPE_CHECKING

from vsetune.lazy_names import lazy_names

if TYPE_CHECKING:
    from vsetune.metrics.recalls import recall

__all__ = ["recall"]

if not TYPE_CHECKING:  # torch is imported with the first use
    __getattr__, __dir__ = lazy_names(__name__, {"vsetune.metrics.recalls": __all__})
