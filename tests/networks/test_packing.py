from __future__ import annotations

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from vsetune.networks.encoded import Encoded, joined
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.parts.packing import RealParts, pack, packed_mask, unpack

LENGTHS = [[3, 5, 1, 5, 2], [1], [4, 4, 4], [1, 2, 3, 4, 5, 6]]


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("shape", [(), (3,)])
def test_packing_and_back_is_that_of_torch_with_its_gradient(lengths: list[int], shape: tuple[int, ...]) -> None:
    counts = torch.tensor(lengths)
    values = torch.randn(len(lengths), 7, *shape, dtype=torch.float64, requires_grad=True)
    packed = pack(values, counts)
    expected = pack_padded_sequence(values, counts, batch_first=True, enforce_sorted=False)
    for found, wanted in zip(packed, expected, strict=True):
        assert torch.equal(found, wanted)
    (of_packed,) = torch.autograd.grad(packed.data.square().sum(), values, retain_graph=True)
    assert torch.equal(of_packed, torch.autograd.grad(expected.data.square().sum(), values)[0])
    back, (wanted, _) = unpack(packed), pad_packed_sequence(expected, batch_first=True)
    assert torch.equal(back, wanted)
    assert torch.equal(packed_mask(packed), torch.arange(max(lengths)) < counts[:, None])
    longer, (wanted, _) = unpack(packed, parts=9), pad_packed_sequence(expected, batch_first=True, total_length=9)
    assert torch.equal(longer, wanted)
    (of_back,) = torch.autograd.grad(back.square().sum(), values)
    assert torch.equal(of_back, of_packed)


@pytest.mark.parametrize("lengths", LENGTHS)
def test_real_parts_are_those_of_the_mask(lengths: list[int]) -> None:
    counts, values = torch.tensor(lengths), torch.randn(len(lengths), 6, 2, dtype=torch.float64, requires_grad=True)
    real, mask = RealParts.of_lengths(counts, 6, values), torch.arange(6) < counts[:, None]
    assert torch.equal(real.mask, mask)
    assert torch.equal(real.rows(values), values[mask])
    assert torch.equal(real.placed(real.rows(values)), values.masked_fill(~mask[..., None], 0.0))
    (found,) = torch.autograd.grad(real.placed(real.rows(values)).sum(), values)
    assert torch.equal(found, mask[..., None].expand_as(values).double())


@pytest.mark.parametrize("rows", [slice(1, 3), torch.tensor([2, 0])])
def test_lengths_on_the_host_follow_the_rows_that_are_chosen(rows: slice | torch.Tensor) -> None:
    lengths, tokens = torch.tensor([2, 3, 1]), torch.zeros(3, 3, dtype=torch.int64)
    # on the meta device no number can be asked for: what is found came from the copy
    captions = CaptionInputs(tokens, lengths.to("meta"), host_lengths=lengths)[rows]
    images = ImageInputs(torch.zeros(3, 3, 1), lengths.to("meta"), host_counts=lengths)[rows]
    items = Encoded(torch.zeros(3, 3, 1), lengths.to("meta"), host_lengths=lengths)
    for found in (captions.lengths_on_host, images.counts_on_host, items[rows].lengths_on_host):
        assert torch.equal(found, lengths[rows])
    assert torch.equal(joined([items, items[rows]]).lengths_on_host, torch.cat((lengths, lengths[rows])))


def test_rows_that_only_a_device_knows_leave_no_lengths_on_the_host() -> None:
    lengths, rows = torch.tensor([2, 3, 1]), torch.tensor([2, 0]).to("meta")
    there = [torch.zeros(3, 3, device="meta"), lengths.to("meta")]
    assert CaptionInputs(*there, host_lengths=lengths)[rows].host_lengths is None
    assert ImageInputs(*there, host_counts=lengths)[rows].host_counts is None
    items = Encoded(*there, host_lengths=lengths)
    assert items[rows].host_lengths is None
    assert joined([items, items[rows]]).host_lengths is None
