"""Comparison of batches bit for bit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

import torch

from vsetune.data.batches.batch import Batch


def assert_equal(ours: Iterable[Batch], theirs: Iterable[Batch]) -> None:
    """As many batches on both sides, with equal fields of equal type."""
    for one, other in zip(ours, theirs, strict=True):
        for field in fields(Batch):
            value, twin = getattr(one, field.name), getattr(other, field.name)
            if value is None or twin is None:
                assert value is twin, field.name
                continue
            assert value.dtype == twin.dtype, field.name
            assert torch.equal(value, twin), field.name
