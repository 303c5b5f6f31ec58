"""Encoded images or captions, in the form that a network compares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from vsetune.networks.parts.network_devices import is_on_cpu, on_host


@dataclass(frozen=True)
class Encoded:
    """n items, float32 or wider.

    vectors: (n, D) one embedding per item; (n, K, D) several embeddings; (n, P, D) parts of a network that scores pairs
    (regions or words), zero where padded. lengths: (n,) int64, number of real parts; None without parts. whole: (n, D)
    a vector of the whole item beside its parts, if the network compares one. links: (n, P, P) weights of edges between
    parts (GSMN), zero where padded. centres: (n, P, 2) x, y of each region's box (GSMN). log_scales: (n, D) logs of
    standard deviations (PCME). residuals: (n, K, D), the part added by PVSE's attention. host_lengths: a CPU copy of
    lengths that are on a GPU; None where there is no copy.
    """

    vectors: Tensor
    lengths: Tensor | None = None
    whole: Tensor | None = None
    links: Tensor | None = None
    centres: Tensor | None = None
    log_scales: Tensor | None = None
    residuals: Tensor | None = None
    host_lengths: Tensor | None = None

    @property
    def lengths_on_host(self) -> Tensor:
        """lengths on the CPU, for items that have some. If they are on a GPU without a CPU copy, this waits for the
        GPU."""
        assert self.lengths is not None
        return on_host(self.lengths, self.host_lengths)

    @property
    def device(self) -> torch.device:
        """Device of the items."""
        return self.vectors.device

    def __len__(self) -> int:
        return self.vectors.shape[0]

    def __getitem__(self, items: slice | Tensor) -> Encoded:
        """Some of the items, in the given order; parts that only other items have remain as padding."""
        present = self.tensors()
        if not isinstance(items, slice) and not is_on_cpu(items) and present.pop("host_lengths", None) is not None:
            # which lengths are chosen is known to the GPU alone
            return replace(self, host_lengths=None, **{name: value[items] for name, value in present.items()})
        return replace(self, **{name: value[items] for name, value in present.items()})

    def to(self, dtype: torch.dtype) -> Encoded:
        """The same items in another floating type."""
        changed = {name: value.to(dtype) for name, value in self.tensors().items() if value.is_floating_point()}
        return replace(self, **changed)

    def at_least_float32(self) -> Encoded:
        """The same items in float32; float64 stays."""
        return self if self.vectors.dtype == torch.float64 else self.to(torch.float32)

    def without_padding(self) -> Encoded:
        """The same items, with `vectors` and `links` zero beyond the lengths whatever their values are now, NaN
        included.

        The comparison depends on it: norms over the words of a caption would include the values behind them.
        """
        if self.lengths is None:
            return self
        is_part = torch.arange(self.vectors.shape[1], device=self.device) < self.lengths[:, None]
        if is_on_cpu(self.vectors) and bool(is_part.all()):  # elsewhere the question costs more than the answer
            return self
        vectors = self.vectors.masked_fill(~is_part[..., None], 0.0)
        if self.links is None:
            return replace(self, vectors=vectors)
        links = self.links.masked_fill(~(is_part[:, :, None] & is_part[:, None]), 0.0)
        return replace(self, vectors=vectors, links=links)

    def tensors(self) -> dict[str, Tensor]:
        """All that is not None, by name."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in found.items() if value is not None}


def joined(groups: Sequence[Encoded]) -> Encoded:
    """All items of several groups of the same network, parts padded to the longest."""
    if groups[0].lengths is not None:
        most = max(group.vectors.shape[1] for group in groups)
        groups = [with_parts(group, most) for group in groups]
    values: dict[str, Tensor] = {}
    for name in groups[0].tensors():
        tensors = [group.tensors()[name] for group in groups if name in group.tensors()]
        if name == "host_lengths" and len(tensors) < len(groups):
            continue
        values[name] = torch.cat(tensors)
    return Encoded(**values)


def with_parts(items: Encoded, parts: int) -> Encoded:
    """The same items, padded to at least as many parts as they have."""
    present = items.tensors()
    padded = {
        name: _with_parts(present[name], parts, square=name == "links")
        for name in ("vectors", "links", "centres") if name in present
    }
    return replace(items, **padded)


def _with_parts(tensor: Tensor, parts: int, *, square: bool) -> Tensor:
    missing = parts - tensor.shape[1]
    if not missing:
        return tensor  # `pad` would copy it
    return pad(tensor, (0, missing if square else 0, 0, missing))
