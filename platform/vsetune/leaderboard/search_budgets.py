"""What the search of a cell was given to train, and what it did train: the same budgets make a comparison fair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LESS, MORE = "less_than_budget", "more_than_budget"
_EPOCHS, _OF_A_TRIAL, _DEVICE_SECONDS = "budget_epochs", "budget_epochs_of_a_trial", "budget_device_seconds"


@dataclass(frozen=True)
class SearchBudget:
    """epochs: given. epochs_of_a_trial: of one that nobody stops. trained: by the trials of the search, failed, stopped
    and running ones included, without what a crash lost. is_out_of_time: it used up its device-seconds."""

    epochs: float
    epochs_of_a_trial: float
    trained: float
    is_out_of_time: bool = False

    @classmethod
    def recorded(
        cls, environment: Mapping[str, str], *, trained: float, device_seconds: float
    ) -> SearchBudget | None:
        """environment: of an attempt of the search, see `recorded_budget`; None where it tells of no budget. trained,
        device_seconds: of all its trials."""
        if _EPOCHS not in environment:
            return None
        is_out_of_time = _DEVICE_SECONDS in environment and device_seconds >= float(environment[_DEVICE_SECONDS])
        return cls(float(environment[_EPOCHS]), float(environment[_OF_A_TRIAL]), trained, is_out_of_time)

    @property
    def flag(self) -> str | None:
        """Where it is off by more than one whole training. A search meets its budget to half a training, so this takes
        failures, a space that was tried whole, or a study that is not over; with its device-seconds used up it got
        all that it was given."""
        if self.trained > self.epochs + self.epochs_of_a_trial:
            return MORE
        is_short = self.trained < self.epochs - self.epochs_of_a_trial
        return LESS if is_short and not self.is_out_of_time else None

    @property
    def words(self) -> str:
        """`23.5 of 24`, epochs."""
        return f"{round(self.trained, 1):g} of {self.epochs:g}"


def recorded_budget(
    epochs: float, *, epochs_of_a_trial: float, device_seconds: float | None = None
) -> dict[str, str]:
    """For the environment of every attempt of a search, from which `SearchBudget.recorded` reads it."""
    limit = {} if device_seconds is None else {_DEVICE_SECONDS: repr(device_seconds)}
    return {_EPOCHS: repr(float(epochs)), _OF_A_TRIAL: repr(float(epochs_of_a_trial)), **limit}
