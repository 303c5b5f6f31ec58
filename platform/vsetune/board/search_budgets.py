"""Epoch budget of a cell's search and the epochs it trained. A fair comparison needs equal budgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LESS, MORE = "less_than_budget", "more_than_budget"
_EPOCHS, _OF_A_TRIAL, _DEVICE_SECONDS = "budget_epochs", "budget_epochs_of_a_trial", "budget_device_seconds"


@dataclass(frozen=True)
class SearchBudget:
    """epochs: the budget. epochs_of_a_trial: of a trial that is not stopped early. trained: by the trials of the
    search; includes failed, stopped and running trials, excludes epochs lost to crashes. failed: epochs that failed
    trials did not train, charged nevertheless. is_over: no trial is open. is_out_of_time: its device-seconds are used
    up."""

    epochs: float
    epochs_of_a_trial: float
    trained: float
    failed: float = 0.0
    is_over: bool = True
    is_out_of_time: bool = False

    @classmethod
    def recorded(
        cls, environment: Mapping[str, str], *, trained: float, failed: Sequence[float], is_over: bool,
        device_seconds: float,
    ) -> SearchBudget | None:
        """The budget recorded in an environment; None without one. environment: of an attempt of the search, see
        `recorded_budget`. trained, device_seconds: of all trials of the search. failed: epochs that each failed trial
        trained."""
        if _EPOCHS not in environment:
            return None
        whole = float(environment[_OF_A_TRIAL])
        is_out_of_time = _DEVICE_SECONDS in environment and device_seconds >= float(environment[_DEVICE_SECONDS])
        short = sum(max(0.0, whole - epochs) for epochs in failed)
        return cls(float(environment[_EPOCHS]), whole, trained, short, is_over, is_out_of_time)

    @property
    def charged(self) -> float:
        """Epochs charged to the budget: a failed trial counts its full length."""
        return self.trained + self.failed

    @property
    def left(self) -> float:
        """Epochs of the budget that were not trained, never negative."""
        return max(0.0, self.epochs - self.trained)

    @property
    def why(self) -> str:
        """Why the trained epochs differ from the budget; empty where they are equal to a tenth of an epoch."""
        beyond = round(self.trained - self.epochs, 1)
        if beyond > 0:
            return "a begun trial is finished"
        if not beyond:
            return ""
        if not self.is_over:
            return "not over"
        if self.is_out_of_time:
            return "its device-seconds are used up"
        if self.failed:
            return "failed trials count whole"
        is_half = self.left > self.epochs_of_a_trial / 2
        return "no trial is left to begin" if is_half else "the rest is less than half a training"

    @property
    def flag(self) -> str | None:
        """LESS or MORE if the trained epochs differ from the budget by more than one full training, else None.

        A search meets its budget to half a training. A larger gap means failed trials, an exhausted search space or a
        study that is not over. A search that used up its device-seconds gets no LESS.
        """
        if self.trained > self.epochs + self.epochs_of_a_trial:
            return MORE
        is_short = self.trained < self.epochs - self.epochs_of_a_trial
        return LESS if is_short and not self.is_out_of_time else None

    @property
    def words(self) -> str:
        """`10 of 8, a begun trial is finished`, in epochs."""
        return f"{round(self.trained, 1):g} of {self.epochs:g}{f', {self.why}' if self.why else ''}"


def total_budget(budgets: Sequence[SearchBudget]) -> SearchBudget | None:
    """The budget of several searches of one cell together; None without one."""
    if not budgets:
        return None
    return SearchBudget(
        epochs=sum(each.epochs for each in budgets), epochs_of_a_trial=budgets[0].epochs_of_a_trial,
        trained=sum(each.trained for each in budgets), failed=sum(each.failed for each in budgets),
        is_over=all(each.is_over for each in budgets),
        is_out_of_time=any(each.is_out_of_time for each in budgets),
    )


def recorded_budget(
    epochs: float, *, epochs_of_a_trial: float, device_seconds: float | None = None
) -> dict[str, str]:
    """Environment entries for every attempt of a search, from which `SearchBudget.recorded` reads the budget."""
    limit = {} if device_seconds is None else {_DEVICE_SECONDS: repr(device_seconds)}
    return {_EPOCHS: repr(float(epochs)), _OF_A_TRIAL: repr(float(epochs_of_a_trial)), **limit}
