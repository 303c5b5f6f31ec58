from __future__ import annotations

import pytest
import torch
from torch import nn

from vsetune.networks.cgmn.network import released_weights
from vsetune.networks.network_base import unit_length
from vsetune.networks.parts.cross_attention import grouped_pair_products, inverse_length, pair_products
from vsetune.networks.parts.network_devices import PLAIN_AUTOGRAD


@pytest.mark.parametrize("blocks", [(), (2,)])
def test_products_of_few_pairs_are_those_of_a_loop_with_their_gradient(blocks: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    lengths, rows, columns = [3, 5, 1, 4], torch.tensor([2, 0, 0, 1, 2]), torch.tensor([0, 1, 3, 3, 2])
    is_word = torch.arange(5) < torch.tensor(lengths)[:, None]
    regions = torch.randn(3, *blocks, 6, 4).double().requires_grad_()
    words = torch.randn(4, *blocks, 5, 4).double().mul(is_word.view(4, *(1 for _ in blocks), 5, 1)).requires_grad_()
    found = pair_products(regions, words, lengths, rows, columns)
    expected = torch.stack([words[column] @ regions[row].mT for row, column in zip(rows, columns, strict=True)])
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    weights = torch.randn_like(found) * is_word[columns].view(5, *(1 for _ in blocks), 5, 1)
    ours, plain = (torch.autograd.grad((each * weights).sum(), [regions, words]) for each in (found, expected))
    torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("at_once", [1, 2, 4, 9])
def test_groups_of_pairs_have_the_products_of_all_without_padding_and_their_gradient(at_once: int) -> None:
    torch.manual_seed(0)
    lengths, rows, columns = [3, 5, 1, 4], torch.tensor([0, 2, 2, 1, 0]), torch.tensor([1, 3, 0, 0, 2])
    is_word = (torch.arange(5) < torch.tensor(lengths)[:, None])[:, None, :, None]
    regions = torch.randn(3, 2, 6, 4).double().requires_grad_()
    words = torch.randn(4, 2, 5, 4).double().mul(is_word).requires_grad_()
    groups = grouped_pair_products(regions, words, lengths, rows, columns, at_once=at_once)
    assert [group.shape[2] for group in groups] == [
        lengths[column] for column in columns[::at_once].tolist()
    ]  # the longest stand first
    whole = torch.cat([nn.functional.pad(group, (0, 0, 0, 5 - group.shape[2])) for group in groups])
    expected = pair_products(regions, words, lengths, rows, columns)
    torch.testing.assert_close(whole, expected, rtol=1e-12, atol=1e-12)
    weights = torch.randn_like(whole) * is_word[columns]
    ours, plain = (torch.autograd.grad((each * weights).sum(), [regions, words]) for each in (whole, expected))
    torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("plain", ["0", "1"], ids=["by hand", "plain autograd"])
def test_a_nan_is_no_vector_of_length_zero(plain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network whose weights are NaN had finite scores and losses, and ended as a finished trial of 0 %."""
    monkeypatch.setenv(PLAIN_AUTOGRAD, plain)
    vectors = torch.randn(3, 4)
    vectors[0], vectors[1, 2] = 0.0, torch.nan
    for unit in (unit_length(vectors), unit_length(vectors.requires_grad_())):
        assert unit.isnan().all(dim=-1).tolist() == [False, True, False]
        assert not unit[0].any()
    assert inverse_length(torch.tensor([0.0, torch.nan, 4.0])).isnan().tolist() == [False, True, False]
    assert released_weights(vectors.detach()[None])[0, 2].isnan().tolist() == [False, True, False]


@pytest.mark.parametrize("plain", ["0", "1"], ids=["by hand", "plain autograd"])
def test_a_vector_of_infinite_length_is_none_of_length_zero(plain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that a learning rate of 1e12 had blown up scored 0 everywhere, and ended as a finished trial of 0 %."""
    monkeypatch.setenv(PLAIN_AUTOGRAD, plain)
    vectors = torch.ones(3, 4)
    vectors[0], vectors[1, 2] = 0.0, 1e20
    for unit in (unit_length(vectors), unit_length(vectors.requires_grad_())):
        assert unit.isnan().all(dim=-1).tolist() == [False, True, False]
        assert torch.equal(unit[[0, 2]], torch.tensor([[0.0] * 4, [0.5] * 4]))
    assert released_weights(vectors.detach()[None])[0, 2].isnan().tolist() == [False, True, False]


def test_unit_length_by_hand_has_the_bits_of_plain_autograd_and_its_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    vectors = torch.randn(7, 3, 33)
    vectors[2, 1], vectors[4] = 0.0, 1e-12  # both too short
    weights, found = torch.randn_like(vectors), []
    for plain in ("0", "1"):
        monkeypatch.setenv(PLAIN_AUTOGRAD, plain)
        leaf = vectors.clone().requires_grad_()
        unit = unit_length(leaf)
        found.append((unit.detach(), *torch.autograd.grad((unit * weights).sum(), leaf)))
    (ours, gradient), (expected, plain_gradient) = found
    assert torch.equal(ours, expected)
    torch.testing.assert_close(gradient, plain_gradient, rtol=1e-5, atol=1e-6)
    assert not gradient[2, 1].any()
    assert not gradient[4].any()
    monkeypatch.setenv(PLAIN_AUTOGRAD, "0")
    assert torch.autograd.gradcheck(unit_length, vectors[:2].double().requires_grad_())
