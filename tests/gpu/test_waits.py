"""The stand-in for a GPU: it computes what the CPU computes, and notes what would wait."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from gpu.made_data import Made, make_data
from gpu.rates import host_batches
from gpu.waits import counted_waits, stand_in_device
from vsetune.config.sources.trial_inputs import NetworkReads, Reading
from vsetune.data.batches.bank_arrays import DeviceArrays
from vsetune.data.batches.bank_batches import BankRows, bank_rows
from vsetune.data.batches.reader import training_batches
from vsetune.data.stored.dataset import Dataset

WAITING: dict[str, Callable[[Tensor], object]] = {
    "a number is read": lambda x: x.sum().item(),
    "a question is asked": lambda x: bool((x > 0).all()),
    "a list is made": lambda x: x.tolist(),
    "what is chosen by a mask has a shape that depends on values": lambda x: x[x > 0],
    "places are found": lambda x: x.nonzero(),
    "values are found once": torch.unique,
    "numbers go to the host": lambda x: x.cpu(),
    "numbers come from the host": lambda x: torch.arange(3).to(x.device),
    "a tensor is made of Python's numbers": lambda x: torch.tensor([1.0, 2.0], device=x.device),
}
FREE: dict[str, Callable[[Tensor], object]] = {
    "products": lambda x: (x @ x.T).relu().sum(),
    "a mask that keeps the shape": lambda x: torch.where(x > 0, x, 0.0),
    "what is made there": lambda x: torch.zeros(3, device=x.device) + torch.arange(3, device=x.device),
    "a copy that nobody waits for": lambda x: torch.arange(3).to(x.device, non_blocking=True),
    "places that are there": lambda x: x[torch.zeros(2, dtype=torch.int64, device=x.device)],
}


@pytest.mark.parametrize("what", WAITING)
def test_waits_are_counted(what: str) -> None:
    with counted_waits() as counts:
        values = torch.ones(2, 2).to(stand_in_device())
        counts.clear()
        WAITING[what](values)
        assert sum(counts.values()) == 1


@pytest.mark.parametrize("what", FREE)
def test_what_is_queued_is_no_wait(what: str) -> None:
    with counted_waits() as counts:
        values = torch.ones(2, 2).to(stand_in_device())
        counts.clear()
        FREE[what](values)
        assert not counts


def test_a_batch_goes_to_the_device_without_a_wait(tmp_path: Path) -> None:
    batch, *_ = host_batches(make_data(tmp_path, Made(images=8, evaluated=4)), 4)
    with counted_waits() as counts:
        there = batch.to(stand_in_device())
        assert not counts
        assert there.captions.tokens.device == there.images.features.device == stand_in_device()
        assert torch.equal(there.captions.host_lengths, batch.captions.lengths)
        assert torch.equal(there.images.host_counts, batch.images.counts)
        assert there.captions.tokens.tolist() == batch.captions.tokens.tolist()
        again = there.to(stand_in_device())
        assert torch.equal(again.captions.host_lengths, batch.captions.lengths)
        assert there.to("cpu").captions.host_lengths is None  # they are there anyway


def test_a_batch_built_on_the_device_knows_its_lengths_on_the_host(tmp_path: Path) -> None:
    data = make_data(tmp_path, Made(images=8, evaluated=4))
    dataset = replace(Dataset.open(data), reading=Reading("auto", bank_bytes=10**9))
    rows = bank_rows(dataset, "train", NetworkReads(), device=torch.device("cpu"))
    assert rows is not None
    with counted_waits() as counts:
        there = BankRows(rows.bank, DeviceArrays(rows.bank, None, stand_in_device()))
        counts.clear()
        with closing(training_batches(
            dataset, "train", batch_size=4, batch_unit="pairs", seed=0, epoch=0, shuffle_pairs=4, rows=there
        )) as found:
            batch = next(iter(found)).to(stand_in_device())
        lengths, regions = batch.captions.lengths_on_host, batch.images.counts_on_host
        assert not counts
        assert torch.equal(lengths, batch.captions.lengths.cpu())
        assert torch.equal(regions, batch.images.counts.cpu())


def test_numbers_of_both_sides_are_refused_as_a_gpu_refuses_them() -> None:
    with counted_waits():
        there = torch.ones(3).to(stand_in_device())
        assert (there * torch.tensor(2.0)).tolist() == [2, 2, 2]  # a scalar may come from anywhere
        with pytest.raises(RuntimeError, match="on the CPU among those on the device"):
            there + torch.ones(3)
