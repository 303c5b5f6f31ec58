"""The stopping rule that a study names."""

from __future__ import annotations

from vsetune.config.study.study_spec import SchedulerSpec
from vsetune.search.stopping.halving import Halving, Hyperband
from vsetune.search.stopping.patience import PatienceOverMedian
from vsetune.search.stopping.predicted import ChanceToWin
from vsetune.search.stopping.rule import StoppingRule


def stopping_rule(spec: SchedulerSpec, *, epochs: float) -> StoppingRule | None:
    """The rule for one cell, whose full-length trials take `epochs`. None: no trial is stopped early."""
    if spec.kind == "none":
        return None
    if spec.kind == "asha":
        return Halving(grace_epochs=spec.grace_epochs, reduction_factor=spec.reduction_factor, epochs=epochs)
    if spec.kind == "hyperband":
        return Hyperband(grace_epochs=spec.grace_epochs, reduction_factor=spec.reduction_factor, epochs=epochs)
    if spec.kind == "predicted":
        return ChanceToWin(
            grace_epochs=spec.grace_epochs, least_chance=spec.least_chance, fewest_trials=spec.fewest_trials,
            epochs=epochs,
        )
    return PatienceOverMedian(
        grace_epochs=spec.grace_epochs, patience_epochs=spec.patience_epochs if spec.kind == "patience" else 0.0,
        fewest_trials=spec.fewest_trials, epochs=epochs,
    )
