"""A single check of a network's output for a batch: a wrong shape is reported with the source line of the method."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from vsetune.errors import ConfigError
from vsetune.networks.encoded import Encoded
from vsetune.networks.network_base import Network

_DIMENSIONS = {"embedding": 2, "several_embeddings": 3, "probabilistic": 2}


def require_sound_items(
    network: Network, name: str, images: Encoded, captions: Encoded, *, sizes: tuple[int, int]
) -> None:
    """ConfigError unless the batch has as many items. name: of the network. sizes: images, captions."""
    for encoded, side, size in ((images, "images", sizes[0]), (captions, "captions", sizes[1])):
        encode = getattr(type(network), f"encode_{side}")
        shape = tuple(encoded.vectors.shape)
        if len(encoded) != size:
            raise _wrong(encode, name, f"encode_{side} gave vectors of shape {shape} for {size} {side}; need one each")
        wanted = _DIMENSIONS.get(network.kind)
        if wanted is not None and len(shape) != wanted:
            need = ("n", "D") if wanted == 2 else ("n", "K", "D")
            raise _wrong(
                encode, name, f"encode_{side} gave vectors of shape {shape}; kind {network.kind} needs "
                f"({', '.join(need)})"
            )


def require_sound_scores(network: Network, name: str, scores: object, *, sizes: tuple[int, int]) -> None:
    """ConfigError unless this is a similarity of every image with every caption that the network can learn from."""
    similarity = type(network).similarity
    if not isinstance(scores, Tensor):
        raise _wrong(similarity, name, f"similarity gave a {type(scores).__name__}, need a tensor")
    if tuple(scores.shape) != sizes:
        raise _wrong(
            similarity, name, f"similarity has shape {tuple(scores.shape)}, need {sizes}: a row per image, a column "
            "per caption"
        )
    if scores.dtype not in (torch.float32, torch.float64):
        raise _wrong(similarity, name, f"similarity is of {scores.dtype}, need float32; use `at_least_float32`")
    learns = any(parameter.requires_grad for parameter in network.parameters())
    if network.training and torch.is_grad_enabled() and learns and not scores.requires_grad:
        raise _wrong(similarity, name, "similarity has no gradient, so nothing would be learned; do not detach it")


def _wrong(function: Callable[..., object], name: str, problem: str) -> ConfigError:
    function = getattr(function, "__wrapped__", function)
    code = function.__code__
    return ConfigError(f"{code.co_filename}:{code.co_firstlineno}: network {name}: {problem}")
