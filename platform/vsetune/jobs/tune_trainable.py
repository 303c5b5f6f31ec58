"""Ray Tune's `Trainable` without the rest of Ray Tune, which no worker needs: 700 modules, a second of its start.

The rest (with Ray Data and pandas, which Tune imports for types and tables that we do not use) loads when something of
it is used, as a driver does.
"""

from vsetune.jobs.unused_modules import import_when_used, submodules_alone

for name in ("ray.tune", "ray.data", "pandas"):
    import_when_used(name)

with submodules_alone("ray.tune"):
    from ray.tune.execution.placement_groups import PlacementGroupFactory
    from ray.tune.trainable import Trainable

__all__ = ["PlacementGroupFactory", "Trainable"]
