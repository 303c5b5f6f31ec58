"""Top-f triplets of several modalities: a worked example, plain loops, both poolings, edge cases."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from vsetune.errors import ConfigError
from vsetune.losses.top_f.loss import top_f_loss
from vsetune.losses.top_f.modalities import top_f_of_modalities

POOLINGS = ["pairwise", "union"]


def matrix(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


@pytest.fixture
def example() -> tuple[dict[tuple[str, str], Tensor], dict[str, Tensor]]:
    """Two tuples with one image, one caption and one sound each."""
    similarities = {
        ("image", "caption"): matrix([0.6, 0.5], [0.3, 0.4]),
        ("image", "sound"): matrix([0.9, 0.2], [0.8, 0.7]),
        ("caption", "sound"): matrix([0.1, 0.0], [0.2, 0.3]),
    }
    return similarities, {name: torch.tensor([0, 1]) for name in ("image", "caption", "sound")}


def random_tuples(seed: int) -> tuple[dict[tuple[str, str], Tensor], dict[str, Tensor]]:
    """Three modalities with 0 to several elements per tuple; some anchors lack positives."""
    generator = torch.Generator().manual_seed(seed)
    ids = {name: torch.randint(4, (size,), generator=generator) for name, size in (("a", 4), ("b", 7), ("c", 5))}
    similarities = {
        (x, y): torch.rand(len(ids[x]), len(ids[y]), generator=generator, dtype=torch.float64)
        for x, y in (("a", "b"), ("c", "a"), ("b", "c"))
    }
    return similarities, ids


def anchor_mean(low: list[float], high: list[float], fraction: float, margin: float) -> float:
    low = sorted(low)[: max(1, math.ceil(fraction * len(low) - 1e-9))]
    high = sorted(high, reverse=True)[: max(1, math.ceil(fraction * len(high) - 1e-9))]
    hinges = [max(0.0, negative + margin - positive) for negative in high for positive in low]
    return sum(hinges) / len(hinges)


def plain_loss(similarities, ids, pooling: str, fraction: float, margin: float) -> float:
    """The definition, anchor by anchor."""
    def score(x: str, i: int, y: str, j: int) -> float:
        return float(similarities[x, y][i, j] if (x, y) in similarities else similarities[y, x][j, i])

    means = []
    for x in ids:
        others = [y for y in ids if y != x]
        for pool in [others] if pooling == "union" else [[y] for y in others]:
            anchors = []
            for i, own in enumerate(ids[x].tolist()):
                elements = [(score(x, i, y, j), other) for y in pool for j, other in enumerate(ids[y].tolist())]
                low = [value for value, other in elements if other == own]
                high = [value for value, other in elements if other != own]
                if low and high:
                    anchors.append(anchor_mean(low, high, fraction, margin))
            means.append(sum(anchors) / len(anchors) if anchors else 0.0)
    return sum(means) / len(means) / margin


def test_worked_example_with_the_hardest_only(example) -> None:
    # hinges of the anchors 0, 1 at m = 0.2
    #   image   to caption 0.1, 0.1   to sound   0,   0.3   pool: 0.5 + 0.2 - 0.6 = 0.1, 0.8 + 0.2 - 0.4 = 0.6
    #   caption to image   0,   0.3   to sound   0.1, 0.1   pool: 0.3 + 0.2 - 0.1 = 0.4, 0.5 + 0.2 - 0.3 = 0.4
    #   sound   to image   0.1, 0     to caption 0.3, 0     pool: 0.8 + 0.2 - 0.1 = 0.9, 0.2 + 0.2 - 0.3 = 0.1
    similarities, ids = example
    pairwise = (0.1 + 0.15 + 0.15 + 0.1 + 0.05 + 0.15) / 6 / 0.2
    union = (0.35 + 0.4 + 0.5) / 3 / 0.2
    value = top_f_of_modalities(similarities, ids, pooling="pairwise", margin=0.2, fraction=0.0)
    assert value.item() == pytest.approx(pairwise, abs=1e-9) == pytest.approx(0.583333, abs=1e-6)
    value = top_f_of_modalities(similarities, ids, pooling="union", margin=0.2, fraction=0.0)
    assert value.item() == pytest.approx(union, abs=1e-9) == pytest.approx(2.083333, abs=1e-6)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("fraction", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_value_equals_plain_loops(pooling, fraction, seed) -> None:
    similarities, ids = random_tuples(seed)
    value = top_f_of_modalities(similarities, ids, pooling=pooling, margin=0.25, fraction=fraction)
    assert value.item() == pytest.approx(plain_loss(similarities, ids, pooling, fraction, 0.25), abs=1e-9)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("fraction", [0.0, 0.5, 1.0])
def test_two_modalities_are_the_two_directions_of_top_f(pooling, fraction, several, several_owner) -> None:
    ids = {"image": torch.arange(3), "caption": several_owner}
    positives = ids["image"][:, None] == several_owner[None, :]
    expected = top_f_loss(several, positives, ~positives, margin=0.2, fraction=fraction)
    for similarities in ({("image", "caption"): several}, {("caption", "image"): several.T}):
        value = top_f_of_modalities(similarities, ids, pooling=pooling, margin=0.2, fraction=fraction)
        assert value.item() == pytest.approx(expected.item(), abs=1e-12)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("fraction", [0.0, 0.5, 1.0])
def test_gradients_agree_with_finite_differences(pooling, fraction) -> None:
    similarities, ids = random_tuples(7)
    names, values = list(similarities), [value.requires_grad_() for value in similarities.values()]

    def loss(*matrices: Tensor) -> Tensor:
        pairs = dict(zip(names, matrices, strict=True))
        return top_f_of_modalities(pairs, ids, pooling=pooling, margin=0.25, fraction=fraction)

    assert torch.autograd.gradcheck(loss, values)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_the_order_of_elements_does_not_matter(pooling) -> None:
    similarities, ids = random_tuples(3)
    order = torch.tensor([3, 0, 6, 2, 5, 1, 4])
    permuted = dict(similarities)
    permuted["a", "b"], permuted["b", "c"] = similarities["a", "b"][:, order], similarities["b", "c"][order]
    first = top_f_of_modalities(similarities, ids, pooling=pooling, margin=0.2, fraction=0.4)
    second = top_f_of_modalities(permuted, ids | {"b": ids["b"][order]}, pooling=pooling, margin=0.2, fraction=0.4)
    assert second.item() == pytest.approx(first.item(), abs=1e-12)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_collapse_gives_one_and_one_tuple_alone_gives_zero(pooling) -> None:
    ids = {name: torch.tensor([0, 1, 1]) for name in "abc"}
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    collapsed = {pair: torch.full((3, 3), 0.4, dtype=torch.float64) for pair in pairs}
    alone = {name: torch.zeros(3, dtype=torch.int64) for name in "abc"}
    for fraction in (0.0, 0.5, 1.0):
        value = top_f_of_modalities(collapsed, ids, pooling=pooling, margin=0.2, fraction=fraction)
        assert value.item() == pytest.approx(1, abs=1e-12)
        leaf = {pair: torch.rand(3, 3, requires_grad=True) for pair in pairs}
        value = top_f_of_modalities(leaf, alone, pooling=pooling, margin=0.2, fraction=fraction)
        assert value.item() == 0
        assert not any(part.any() for part in torch.autograd.grad(value, list(leaf.values())))


@pytest.mark.parametrize("pooling", POOLINGS)
def test_one_nan_anywhere_reaches_the_value(pooling, example) -> None:
    similarities, ids = example
    for pair in similarities:
        broken = similarities | {pair: similarities[pair].clone()}
        broken[pair][1, 0] = float("nan")
        assert top_f_of_modalities(broken, ids, pooling=pooling, margin=0.2, fraction=0.0).isnan()


def test_missing_doubled_and_ill_shaped_similarities_are_refused(example) -> None:
    similarities, ids = example
    settings = {"pooling": "pairwise", "margin": 0.2, "fraction": 0.5}
    doubled = similarities | {("caption", "image"): matrix([0, 0], [0, 0])}
    missing = {pair: value for pair, value in similarities.items() if pair != ("image", "sound")}
    for wrong in (doubled, missing):
        with pytest.raises(ConfigError, match="once, in either order: image-caption, image-sound, caption-sound"):
            top_f_of_modalities(wrong, ids, **settings)
    with pytest.raises(ConfigError, match=r"got image-caption of shape \(2, 3\), need \(2, 2\)"):
        top_f_of_modalities(similarities | {("image", "caption"): torch.zeros(2, 3)}, ids, **settings)
    with pytest.raises(ConfigError, match="got 1, need at least 2"):
        top_f_of_modalities({}, {"image": torch.arange(2)}, **settings)
