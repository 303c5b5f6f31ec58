"""What losses and metrics of the Python interface refuse: the one place that checks the tensors people give them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vsetune.errors import Problem, UsageError


@dataclass(frozen=True)
class Arguments:
    """The arguments of one call. call: what is called, at the start of every message. error: the class of refusals.

    Shapes, types and devices are read without waiting for a GPU; the values of numbers on a GPU are waited for.
    """

    call: str
    error: type[UsageError]

    def tensors(self, **values: object) -> None:
        """Refuse everything but tensors of torch; None is left out."""
        for what, value in values.items():
            if value is not None and not isinstance(value, Tensor):
                raise self.error(
                    "VSE-M400", "{call}: {what} is of type {got}, need a tensor of torch (`torch.as_tensor`)",
                    call=self.call, what=what, got=type(value).__name__,
                )

    def floats(self, **values: Tensor | None) -> None:
        """Refuse other numbers than floating-point ones, and float64 beside narrower ones; None is left out."""
        kinds = {what: value for what, value in values.items() if value is not None}
        for what, value in kinds.items():
            if not value.is_floating_point():
                raise self.error(
                    "VSE-M401", "{call}: {what} has numbers of {got}, need floating-point numbers",
                    call=self.call, what=what, got=value.dtype,
                )
            other = next(iter(kinds))
            first = kinds[other]
            if (value.dtype == torch.float64, value.device) != (first.dtype == torch.float64, first.device):
                raise self.error(
                    "VSE-M402", "{call}: {what} is {got}, but {other} is {first}; need one precision and one device",
                    call=self.call, what=what, got=f"{value.dtype} on {value.device}", other=other,
                    first=f"{first.dtype} on {first.device}",
                )

    def shape(self, what: str, value: Tensor, need: str, *, fits: bool) -> None:
        """Refuse a tensor whose shape does not fit, and one without numbers. need: in words."""
        if not fits or not value.numel():
            raise self.error(
                "VSE-M403", "{call}: {what} has shape {got}, need {need}",
                call=self.call, what=what, got=tuple(value.shape), need=need,
            )

    def integers(self, what: str, value: Tensor, *, count: int, below: int | None = None) -> Tensor:
        """(count,) int64. Refuses other shapes, other numbers than integers, and numbers outside 0 to below - 1."""
        self.shape(what, value, f"({count},)", fits=value.shape == (count,))
        if value.is_floating_point() or value.is_complex() or value.dtype == torch.bool:
            raise self.error(
                "VSE-M404", "{call}: {what} has numbers of {got}, need integers (int64)",
                call=self.call, what=what, got=value.dtype,
            )
        if below is not None:
            low, high = int(value.min()), int(value.max())
            if low < 0 or high >= below:
                raise self.error(Problem.of(
                    "VSE-M003", "{where}: got {what} from {low} to {high}, need 0 to {most}", where=self.call,
                    what=what, low=low, high=high, most=below - 1,
                ))
        return value.long()
