"""Ray Tune's `Trainable` without the rest of Ray Tune, which no worker needs: 700 modules, a second of its start.

The rest (with Ray Data and pandas, which Tune imports for types and tables that we do not use) loads when something of
it is used, as a driver does. Whatever Tune sends with a trial must therefore be of modules that a worker has.
"""

from __future__ import annotations

import copyreg
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from vsetune.jobs.unused_modules import import_when_used, submodules_alone

for name in ("ray.tune", "ray.data", "pandas"):
    import_when_used(name)

with submodules_alone("ray.tune"):
    from ray.tune.execution.placement_groups import PlacementGroupFactory
    from ray.tune.trainable import Trainable

__all__ = ["PlacementGroupFactory", "SentTrial", "Trainable", "trials_sent_plainly"]


@dataclass
class SentTrial:
    """What Tune's `Trainable` asks of the note on its trial that comes with each configuration."""

    trial_name: str
    trial_id: str
    trial_resources: PlacementGroupFactory
    experiment_name: str


@contextmanager
def trials_sent_plainly() -> Iterator[None]:
    """For a driver: inside, that note reaches workers as a `SentTrial`. Its own class stands in a module of the driver:
    each worker would import all of Tune for it before its first trial."""
    from ray.tune.experiment.trial import _TrialInfo

    before = copyreg.dispatch_table.get(_TrialInfo)
    copyreg.pickle(_TrialInfo, _sent)
    try:
        yield
    finally:
        copyreg.dispatch_table.pop(_TrialInfo)
        if before is not None:
            copyreg.dispatch_table[_TrialInfo] = before


def _sent(info: Any) -> tuple[type[SentTrial], tuple[Any, ...]]:
    return SentTrial, (info.trial_name, info.trial_id, info.trial_resources, info.experiment_name)
