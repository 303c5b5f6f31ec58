"""Ray Tune's `Trainable` without the rest of Ray Tune, which no worker needs: 700 modules, a second of its start.

The rest (with Ray Data and pandas, which Tune imports for types and tables that we do not use) loads when something of
it is used, as a driver does.
"""

# ruff: noqa: E402
from vsetune.jobs.unused_modules import import_when_used

import_when_used("ray.tune", keep_submodules=True)
import_when_used("ray.data")
import_when_used("pandas")

from ray.tune.trainable import Trainable

__all__ = ["Trainable"]
