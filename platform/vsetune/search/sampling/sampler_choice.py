"""The sampler that a study names."""

from __future__ import annotations

from vsetune.search.sampling.evolution import CovarianceDraws, GeneticDraws
from vsetune.search.sampling.gp import GaussianProcessDraws
from vsetune.search.sampling.grid import GridPoints
from vsetune.search.sampling.independent import EvenPoints, RandomDraws
from vsetune.search.sampling.sampler import Sampler
from vsetune.search.sampling.tpe import ParzenDraws

_SAMPLERS: dict[str, type[Sampler]] = {
    kind.name: kind for kind in (
        GaussianProcessDraws, ParzenDraws, CovarianceDraws, GeneticDraws, EvenPoints, RandomDraws, GridPoints,
    )
}


def sampler_named(name: str) -> Sampler:
    """A new instance; each cell has its own."""
    return _SAMPLERS[name]()
