"""Comparison of batches bit for bit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

import torch

from vsetune.data.batches.batch import Batch


def assert_equal(ours: Iterable[Batch], theirs: Iterable[Batch]) -> None:
    """As many batches on both sides, with equal fields of equal type."""
    for one, other in zip(ours, theirs, strict=True):
        for part, twins in ((one, other), (one.images, other.images), (one.captions, other.captions)):
            for field in fields(part):
                value, twin = getattr(part, field.name), getattr(twins, field.name)
                if not isinstance(value, torch.Tensor) or twin is None:
                    assert type(value) is type(twin), field.name
                    continue
                assert value.dtype == twin.dtype, field.name
                assert torch.equal(value, twin), field.name
