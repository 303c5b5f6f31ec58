"""A single check of a loss's output: a wrong shape is reported with the source line of the loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from vsetune.errors import ConfigError
from vsetune.losses.loss_base import LossInputs, LossOutput


def require_sound(output: object, inputs: LossInputs, *, name: str, forward: Callable[..., object]) -> None:
    """ConfigError, which starts with file and line, unless this is a valid output. name: of the loss. Reads no
    value."""
    code = forward.__code__
    for problem in _problems(output, inputs):
        raise ConfigError(f"{code.co_filename}:{code.co_firstlineno}: loss {name}: {problem}")


def _problems(output: object, inputs: LossInputs) -> Iterator[str]:
    if not isinstance(output, LossOutput):
        yield f"forward returned a {type(output).__name__}, need `LossOutput(value=...)`"
        return
    value = output.value
    if not isinstance(value, Tensor):
        yield f"value is a {type(value).__name__}, need a tensor of one number; compute it from inputs.similarity"
        return
    if value.dim() != 0:
        yield f"value has shape {tuple(value.shape)}, need one number; reduce it with `.mean()` or `.sum()`"
    elif not _is_wide(value):
        yield f"value is of {value.dtype}, need float32 or wider; begin with `at_least_float32(inputs.similarity)`"
    elif torch.is_grad_enabled() and inputs.similarity.requires_grad and not value.requires_grad:
        yield "value has no gradient; compute it from inputs.similarity or the embeddings, without `.detach()`"
    for key, part in output.parts.items():
        if not isinstance(part, Tensor) or part.dim() != 0:
            got = f"shape {tuple(part.shape)}" if isinstance(part, Tensor) else f"type {type(part).__name__}"
            yield f"part {key} has {got}, need a tensor of one number to log"
        elif part.requires_grad:
            yield f"part {key} carries a gradient, which keeps the whole batch in memory; write `.detach()`"
    selection = output.selection
    if selection is not None:
        for key, matrix in (("scores", selection.scores), ("negatives", selection.negatives)):
            if matrix.shape != inputs.similarity.shape:
                yield (
                    f"selection.{key} has shape {tuple(matrix.shape)}, need {tuple(inputs.similarity.shape)} (images, "
                    "captions)"
                )


def _is_wide(value: Tensor) -> bool:
    return value.dtype in (torch.float32, torch.float64)
