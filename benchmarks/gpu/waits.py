"""Where a training step makes the host wait for the device, found without a device.

A stand-in for a GPU: tensors that claim to be elsewhere and compute on the CPU. Whatever would wait for a GPU's queue
there (reading a number, asking for a shape that depends on values, a copy that is not told to be asynchronous) is noted
with the line of ours that caused it. What a GPU refuses, numbers of both in one operation, is refused here too.

The stand-in knows which operations wait from PyTorch's CUDA kernels; on a real GPU `torch.cuda.set_sync_debug_mode` and
the profiler count (`step_waits.py`). Kernels of CUDA's libraries are not imitated: nn.GRU runs as PyTorch composes it,
and a sparse gradient is dense here.
"""

from __future__ import annotations

import functools
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map_only

PACKAGE = "/vsetune/"
KIND = "standin"
_READS = frozenset({
    "_local_scalar_dense", "nonzero", "masked_select", "_unique", "_unique2", "unique_dim", "unique_consecutive",
    "unique_dim_consecutive", "equal", "is_nonzero", "nonzero_numpy", "count_nonzero_host",
})
"""Operations after which PyTorch's CUDA code copies a number to the host and waits."""
_INDEXING = frozenset({"index", "index_put", "index_put_", "_unsafe_index", "_index_put_impl_"})
_TAKE_BOTH = frozenset({
    "_to_copy", "to", "copy_", "_pack_padded_sequence", "_pack_padded_sequence_backward", "gru", "lstm", "_copy_from",
    "_foreach_copy_", *_INDEXING,
})
"""Operations that may be given numbers of both sides."""


class Wait(NamedTuple):
    """operation: of torch. place: `module.py:line` of the nearest of our lines, `backward` where none is on the way."""

    operation: str
    place: str


class StandIn(Tensor):
    """A tensor that says it is on the stand-in device; `here` holds its numbers."""

    here: Tensor

    @staticmethod
    def __new__(cls, here: Tensor) -> StandIn:
        if here.is_sparse:
            here = here.to_dense()
        return Tensor._make_wrapper_subclass(
            cls, here.size(), strides=here.stride(), storage_offset=here.storage_offset(), dtype=here.dtype,
            device=stand_in_device(), requires_grad=False,
        )

    def __init__(self, here: Tensor) -> None:
        self.here = here.to_dense() if here.is_sparse else here

    def tolist(self) -> Any:
        """As of a CUDA tensor: a copy, which waits."""
        return self.cpu().tolist()

    def __repr__(self) -> str:  # type: ignore[override]
        return f"StandIn({self.here!r})"

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {}, waits=None)


class CountedWaits(TorchDispatchMode):
    """Inside, operations on the stand-in device work, and waits are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[Wait] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {}, waits=self.counts)


class _NumbersFromPython(TorchFunctionMode):
    """`torch.tensor(.., device=..)` makes its tensor out of sight of dispatch; here the copy is in sight."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is Tensor.new_tensor and isinstance(args[0], StandIn):
            target = torch.device(kwargs.pop("device", None) or args[0].device)
            return torch.tensor(args[1], **{"dtype": args[0].dtype, **kwargs}).to(target)
        if func in (torch.tensor, torch.as_tensor) and kwargs.get("device") is not None:
            target = torch.device(kwargs.pop("device"))
            return func(*args, **kwargs).to(target)
        return func(*args, **kwargs)


@functools.cache
def stand_in_device() -> torch.device:
    """The device; PyTorch learns its name at the first call, once per process."""
    from torch.utils import backend_registration

    class Module(backend_registration._DummyBackendModule):
        """What PyTorch asks of `torch.standin`."""

        def get_amp_supported_dtype(self) -> list[torch.dtype]:
            return [torch.bfloat16]

        def is_available(self) -> bool:
            """No: nothing of PyTorch shall choose it by itself, as nn.DataParallel would."""
            return False

        def get_rng_state(self, device: object = None) -> Tensor:
            return torch.get_rng_state()

        def set_rng_state(self, state: Tensor, device: object = None) -> None:
            torch.set_rng_state(state)

    backend_registration._setup_privateuseone_for_python_backend(KIND, Module())
    return torch.device(KIND, 0)


@contextmanager
def counted_waits() -> Iterator[Counter[Wait]]:
    """Counts by operation and place of what happens inside."""
    stand_in_device()
    with CountedWaits() as mode, _NumbersFromPython():
        yield mode.counts


def _run(func: Any, args: Any, kwargs: dict[str, Any], *, waits: Counter[Wait] | None) -> Any:
    name = func.overloadpacket.__name__
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    there = [tensor for tensor in tensors if isinstance(tensor, StandIn)]
    target = kwargs.get("device")
    wants_there = target is not None and torch.device(target).type == KIND
    if not there and not wants_there:
        return func(*args, **kwargs)
    if there:
        _refuse_both(name, tensors)
    if waits is not None and _waits(name, args, kwargs, there=bool(there)):
        waits[Wait(name, _place())] += 1
    inner_args, inner_kwargs = tree_map_only(StandIn, lambda tensor: tensor.here, (args, kwargs))
    if target is not None:
        inner_kwargs = {**inner_kwargs, "device": torch.device("cpu")}
    if kwargs.get("pin_memory"):
        inner_kwargs["pin_memory"] = False
    found = _INSTEAD.get(name, func)(*inner_args, **inner_kwargs)
    leaves_device = name == "_local_scalar_dense" or (target is not None and not wants_there)
    if leaves_device or (name == "copy_" and not isinstance(args[0], StandIn)):
        return args[0] if name == "copy_" else found
    if not there:
        return tree_map_only(Tensor, StandIn, found)
    if name == "_pack_padded_sequence":  # its second result, sizes of the batch, stays on the CPU
        return StandIn(found[0]), found[1]
    out = tree_map_only(Tensor, StandIn, found)
    return return_and_correct_aliasing(func, args, kwargs, out)


def _refuse_both(name: str, tensors: Iterable[Tensor]) -> None:
    """RuntimeError where a GPU would refuse: numbers of both sides, but for scalars and what is known to take both."""
    strange = [tensor for tensor in tensors if not isinstance(tensor, StandIn) and tensor.ndim > 0]
    if strange and name not in _TAKE_BOTH:
        raise RuntimeError(f"{name}: a tensor of {tuple(strange[0].shape)} on the CPU among those on the device")


def _waits(name: str, args: Any, kwargs: dict[str, Any], *, there: bool) -> bool:
    if name in _READS:
        return there
    if name == "repeat_interleave":
        return there and kwargs.get("output_size") is None
    if name in _INDEXING:
        indices = [index for index in args[1] if index is not None]
        is_mask = any(index.dtype in (torch.bool, torch.uint8) for index in indices)
        is_value_here = len(args) > 2 and isinstance(args[2], Tensor) and not isinstance(args[2], StandIn)
        return is_mask or is_value_here or any(not isinstance(index, StandIn) for index in indices)
    if name in ("_to_copy", "to"):
        crosses = isinstance(args[0], StandIn) != (torch.device(kwargs.get("device") or args[0].device).type == KIND)
        return crosses and not kwargs.get("non_blocking", False)
    if name == "copy_":
        crosses = isinstance(args[0], StandIn) != isinstance(args[1], StandIn)
        is_asynchronous = args[2] if len(args) > 2 else kwargs.get("non_blocking", False)
        return crosses and not is_asynchronous
    return False


def _gru_cell(
    inputs: Tensor, hidden: Tensor, before: Tensor, input_bias: Tensor | None = None, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """PyTorch's fused cell, which has no CPU kernel: (S, D) states, (S, 5 D) what its gradient needs."""
    given = (inputs if input_bias is None else inputs + input_bias).chunk(3, dim=1)
    kept = (hidden if bias is None else hidden + bias).chunk(3, dim=1)
    reset, update = (given[0] + kept[0]).sigmoid(), (given[1] + kept[1]).sigmoid()
    new = (given[2] + reset * kept[2]).tanh()
    return new + update * (before - new), torch.cat((reset, update, new, before, kept[2]), dim=1)


def _gru_cell_backward(gradient: Tensor, kept: Tensor, has_bias: bool) -> tuple[Tensor | None, ...]:
    """Gradients of `_gru_cell`: of what was given, in its order."""
    reset, update, new, before, of_new = kept.chunk(5, dim=1)
    to_new = gradient * (1 - update) * (1 - new.square())
    to_reset = to_new * of_new * reset * (1 - reset)
    to_update = gradient * (before - new) * update * (1 - update)
    inputs, hidden = (torch.cat((to_reset, to_update, last), dim=1) for last in (to_new, to_new * reset))
    biases = (inputs.sum(dim=0), hidden.sum(dim=0)) if has_bias else (None, None)
    return inputs, hidden, gradient * update, *biases


_INSTEAD: dict[str, Any] = {
    "_thnn_fused_gru_cell": _gru_cell, "_thnn_fused_gru_cell_backward": _gru_cell_backward,
}


def _place() -> str:
    """The innermost line of the package that is being run."""
    for frame in reversed(traceback.extract_stack()):
        if PACKAGE in frame.filename and "/site-packages/" not in frame.filename.rpartition(PACKAGE)[0][-20:]:
            path = Path(frame.filename.rpartition(PACKAGE)[2])
            return f"{path}:{frame.lineno}"
    return "backward"
