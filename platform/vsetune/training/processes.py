"""Several processes that train one trial: each encodes its share of every batch, and all take the same step.

A validation is divided too: each process encodes and ranks its share of the split. Its batches and blocks are those of
one process, and sums have one term that is not 0, so the ranks are the same to the last bit.

Every process reads the whole batch, encodes its share and receives the encoded items of the others, so that each
computes the loss of the whole batch. A gradient that reaches the gathered items is the sum over the processes, hence
`count` times that of the loss; the mean of the parameters' gradients over the processes is their gradient. Encoding and
scores of pairs are divided; reading a batch and the loss of embeddings are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, distributed, nn

from vsetune.errors import AttemptError
from vsetune.networks.encoded import Encoded, with_parts

Item = TypeVar("Item")
ItemsT = TypeVar("ItemsT", Encoded, Tensor)


@dataclass(frozen=True)
class Ranking:
    """A task of all processes: to rank a split. images: only this many of it. weights: to rank with; None: those that
    are trained. test: the further test set (`data.tests`) that the split is of; None: the trial's own data set."""

    split: str
    images: int | None
    weights: dict[str, Tensor] | None = None
    test: str | None = None


Task = Literal["step"] | Ranking


@dataclass(frozen=True)
class Share:
    """Parts of the items 0, 1, ... that a process encodes, and the items that it contributes: `count` from `start`
    on."""

    parts: Sequence[slice]
    start: int
    count: int

    def contributed(self, encoded: ItemsT) -> ItemsT:
        """Of the items of all parts, those that are contributed: all or none. All are not copied."""
        return encoded if self.count else encoded[:0]


@dataclass(frozen=True)
class Processes:
    """number: of this process, from 0. count: of all; more than one need torch.distributed's default group, in the same
    order. A process that is gone raises AttemptError of kind `process` in the others."""

    number: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes checkpoints and names the tasks."""
        return self.number == 0

    def some(self, parts: Sequence[Item]) -> Sequence[Item]:
        """The parts of this process, consecutive ones; perhaps none."""
        first, end = (len(parts) * place // self.count for place in (self.number, self.number + 1))
        return parts[first:end]

    def share(self, total: int, *, size: int) -> Share:
        """This process's share of `total` items in parts of `size`. A process without any part encodes the first as
        well and contributes none of it: so it has tensors of the right kind to gather."""
        parts = [slice(start, min(start + size, total)) for start in range(0, total, size)]
        own = self.some(parts)
        return Share(own, own[0].start, own[-1].stop - own[0].start) if own else Share(parts[:1], 0, 0)

    def gathered(self, own: Encoded, *, start: int, total: int) -> Encoded:
        """All `total` items, in every process, with gradient to the own ones, which are those from `start` on."""
        if self.count == 1:
            return own
        if own.lengths is not None:
            parts = torch.tensor(own.vectors.shape[1], device=own.device)
            with _of_the_group():
                distributed.all_reduce(parts, distributed.ReduceOp.MAX)
            own = with_parts(own, int(parts))
        tensors = own.tensors()
        tensors.pop("host_lengths", None)
        return Encoded(**{name: self.rows(tensor, start=start, total=total) for name, tensor in tensors.items()})

    def rows(self, own: Tensor, *, start: int, total: int) -> Tensor:
        """(total, ...) rows of all processes; see `gathered`."""
        return own if self.count == 1 else _Gathered.apply(own, start, total)  # type: ignore[no-untyped-call]

    def total(self, own: Tensor) -> Tensor:
        """The sum of the processes' tensors, which have one shape; with gradient, see `_Gathered`."""
        return self.rows(own, start=0, total=len(own))

    def from_all(self, own: Item) -> list[Item]:
        """The values of all processes in their order, in every process: plain data, and tensors of the CPU."""
        if self.count == 1:
            return [own]
        found: list[Any] = [None] * self.count
        with _of_the_group():
            distributed.all_gather_object(found, own)
        return found

    @torch.no_grad()
    def average(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace the gradients by their mean over the processes. A parameter without gradient in all keeps none."""
        learned = [parameter for parameter in parameters if parameter.requires_grad]
        if self.count == 1 or not learned:
            return
        has_gradient = torch.tensor([each.grad is not None for each in learned], device=learned[0].device).int()
        with _of_the_group():
            distributed.all_reduce(has_gradient, distributed.ReduceOp.MAX)
            for parameter, has in zip(learned, has_gradient.tolist(), strict=True):
                if has:
                    parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                    distributed.all_reduce(parameter.grad)
                    parameter.grad /= self.count

    def task(self, task: Task | None = None) -> Task | None:
        """What all processes do next, as the first one says; None: nothing more. The others wait here until it does."""
        asked: Task | None = self.from_first(task)
        return asked

    def from_first(self, value: Any) -> Any:
        """The value of the first process, in every process: plain data and tensors, which arrive on the CPU."""
        if self.count == 1:
            return value
        box = [value]
        with _of_the_group():
            distributed.broadcast_object_list(box, src=0)
        return box[0]


ALONE = Processes()


class _Gathered(torch.autograd.Function):
    """The sum of the processes' rows, each beside zeros; the gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, start: int, total: int) -> Tensor:
        ctx.place = slice(start, start + len(own))
        whole = own.new_zeros((total, *own.shape[1:]))
        whole[ctx.place] = own
        with _of_the_group():
            distributed.all_reduce(whole)
        return whole

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        whole = gradient.clone(memory_format=torch.contiguous_format)
        with _of_the_group():
            distributed.all_reduce(whole)
        return whole[ctx.place], None, None


@contextmanager
def _of_the_group() -> Any:
    """A RuntimeError in here means that another process is gone."""
    try:
        yield
    except RuntimeError as error:
        failure = AttemptError(
            "VSE-T032", "a process of the trial is gone ({reason}); the trial goes on from its checkpoint",
            reason=str(error).partition("\n")[0][:200],
        )
        failure.kind = "process"
        raise failure from error
