"""Every loss by the name that study files use. A weighted sum of them is written as a list there."""

from __future__ import annotations

from vsetune.config.components.catalogue import Catalogue
from vsetune.losses.loss_spec import LossSpec

LOSSES: Catalogue[LossSpec] = Catalogue("loss", LossSpec, __package__)
