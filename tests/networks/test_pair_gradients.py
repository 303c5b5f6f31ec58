"""Gradients of few scores, and of most, equal those of plain autograd over a loop of pairs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from vsetune.networks.encoded import Encoded
from vsetune.networks.parts.cpu import pairs
from vsetune.networks.parts.cpu.pairs import Chosen, Seen, SideBySide, scores_by_pair
from vsetune.networks.parts.cross_attention import word_mask_of
from vsetune.networks.parts.network_devices import PLAIN_AUTOGRAD

IMAGES, CAPTIONS, LONGEST = 7, 6, 5


def drawn() -> tuple[Encoded, Encoded, Tensor]:
    """Images with links, captions of several lengths, a parameter."""
    torch.manual_seed(0)
    regions, links = torch.randn(IMAGES, 3, 4).double(), torch.randn(IMAGES, 3).double()
    images = Encoded(regions, torch.full((IMAGES,), 3), links=links)
    captions = Encoded(torch.randn(CAPTIONS, LONGEST, 4).double(), torch.tensor([2, 5, 1, 4, 4, 3])).without_padding()
    for tensor in (images.vectors, images.links, captions.vectors):
        assert tensor is not None
        tensor.requires_grad_()
    return images, captions, torch.randn(4).double().requires_grad_()


def ways(parameter: Tensor, few: str) -> tuple[Callable[[Encoded, Encoded], Tensor], SideBySide | Chosen]:
    def of_pairs(images: Encoded, captions: Encoded) -> Tensor:
        products = captions.vectors @ (images.vectors * parameter).mT * word_mask_of(captions)[..., None]
        return (products.tanh().sum(dim=1) * images.links).sum(dim=1)

    def of_all(images: Encoded, captions: Encoded) -> Tensor:
        return torch.stack([
            torch.stack([of_pairs(images[row : row + 1], captions[column : column + 1])[0]
                         for column in range(len(captions))])
            for row in range(len(images))
        ])

    def of_chosen(images: Encoded, captions: Encoded, rows: Tensor, columns: Tensor) -> Tensor:
        return of_pairs(images[rows], captions[columns])

    return of_all, SideBySide(of_pairs) if few == "side by side" else Chosen(of_chosen)


def gradients(weights: Tensor, seen: Seen, few: str = "side by side") -> list[Tensor]:
    images, captions, parameter = drawn()
    scores = scores_by_pair(*ways(parameter, few), images, captions, [parameter], seen)
    learned = [images.vectors, images.links, captions.vectors, parameter]
    return [scores.detach(), *torch.autograd.grad((scores.square() * weights).sum(), learned)]


@pytest.mark.parametrize("read", [0, 4, IMAGES * CAPTIONS], ids=lambda read: f"{read} scores read")
@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("at_once", [3, 32])
@pytest.mark.parametrize("few", ["side by side", "chosen"])
def test_gradients_are_those_of_plain_autograd(
    read: int, is_kept: bool, at_once: int, few: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "_PAIRS_AT_ONCE", at_once)
    monkeypatch.setattr(pairs, "_CHOSEN_AT_ONCE", at_once)
    weights = torch.zeros(IMAGES * CAPTIONS).double()
    weights[torch.randperm(len(weights), generator=torch.Generator().manual_seed(1))[:read]] = 1.0
    weights, seen = weights.view(IMAGES, CAPTIONS), Seen(is_dense=is_kept)
    found = gradients(weights, seen, few)
    assert seen.is_dense == (read > 5)
    monkeypatch.setenv(PLAIN_AUTOGRAD, "1")
    for ours, plain in zip(found, gradients(weights, Seen()), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("few", ["side by side", "chosen"])
@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("changed", ["parameter", "frozen parameter", "images", "captions", "links"])
def test_what_changes_between_the_scores_and_their_gradient_is_refused_as_by_autograd(
    changed: str, is_kept: bool, few: str
) -> None:
    images, captions, parameter = drawn()
    of_pairs = {"parameter": parameter, "frozen parameter": parameter, "images": images.vectors,
                "captions": captions.vectors, "links": images.links}
    if changed == "frozen parameter":
        parameter.requires_grad_(False)
    if changed == "links":
        images.links.requires_grad_(False)
    scores = scores_by_pair(*ways(parameter, few), images, captions, [parameter], Seen(is_dense=is_kept))
    with torch.no_grad():
        of_pairs[changed].add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        scores[0, 0].backward()


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_second_gradient_of_the_same_scores_has_to_be_asked_for_as_of_autograd(is_kept: bool) -> None:
    images, captions, parameter = drawn()
    scores = scores_by_pair(*ways(parameter, "chosen"), images, captions, [parameter], Seen(is_dense=is_kept))
    first, = torch.autograd.grad(scores[0, 0], parameter, retain_graph=True)
    second, = torch.autograd.grad(scores[0, 0], parameter)
    assert torch.equal(first, second)
    with pytest.raises(RuntimeError, match="second time"):
        scores[0, 0].backward()
