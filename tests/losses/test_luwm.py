"""LUWM: worked numbers, plain loops, the trap of the negative polynomial, queries that are not used."""

from __future__ import annotations

import pytest
import torch
from loss_values import gradient
from torch import Tensor

from vsetune.losses.loss_building import build_loss
from vsetune.losses.luwm.loss import Quadratic, is_used, universal_weighting
from vsetune.losses.luwm.spec import LuwmSpec

POSITIVE, NEGATIVE = Quadratic(0.5, -0.7, 0.2), Quadratic(0.03, -0.4, 0.9)


def plain_loss(spec: LuwmSpec, s: list[list[float]], ids: list[int]) -> float:
    """The definition, one query at a time."""
    size, total = len(ids), 0.0
    for i in range(size):
        p = s[i][i]
        others = [j for j in range(size) if j != i and (spec.variant == "diagonal" or ids[i] != ids[j])]
        for scores in ([s[i][j] for j in others], [s[j][i] for j in others]):
            if not scores or not p < 1 - spec.epsilon or not max(scores) + spec.margin > p:
                continue
            h = max(scores)
            total += max(0.0, spec.positive_constant + spec.positive_slope * p + spec.positive_curvature * p * p)
            if not (spec.one_sided and h < -spec.negative_slope / (2 * spec.negative_curvature)):
                total += max(0.0, spec.negative_constant + spec.negative_slope * h + spec.negative_curvature * h * h)
    return total / size


def terms_of(p: list[float], h: list[float], *, one_sided: bool = False) -> Tensor:
    matched, hardest = torch.tensor(p, dtype=torch.float64), torch.tensor(h, dtype=torch.float64)
    used = is_used(matched, hardest, margin=0.2, epsilon=1e-5)
    return universal_weighting(matched, hardest, used, positive=POSITIVE, negative=NEGATIVE, one_sided=one_sided)


def test_matrix_e_by_hand(e, make_pairs) -> None:
    rows = terms_of([0.60, 0.40, 0.70], [0.50, 0.55, 0.45])
    columns = terms_of([0.60, 0.40, 0.70], [0.30, 0.50, 0.55])
    torch.testing.assert_close(rows, torch.tensor([0.207, 0.33425, 0], dtype=torch.float64))
    torch.testing.assert_close(columns, torch.tensor([0, 0.307, 0.19025], dtype=torch.float64))
    value = build_loss(LuwmSpec())(make_pairs(e)).value
    assert value.item() == pytest.approx(0.346167, abs=1e-6)
    expected = [[-0.153333, 0.333333, 0], [0, -0.36, 0.393333], [0, 0, -0.14]]
    torch.testing.assert_close(
        gradient(value, e), torch.tensor(expected, dtype=torch.float64), atol=1e-6, rtol=0
    )


SPECS = [
    LuwmSpec(), LuwmSpec(variant="diagonal"), LuwmSpec(one_sided=True), LuwmSpec(epsilon=0.3, margin=0.05),
    LuwmSpec(
        positive_constant=0.8, positive_slope=-1.1, positive_curvature=0.3, negative_constant=0.1, negative_slope=0.2,
        negative_curvature=0.5, one_sided=True,
    ),
]


@pytest.mark.parametrize("spec", SPECS, ids=repr)
@pytest.mark.parametrize(("seed", "size"), [(0, 1), (1, 2), (3, 16)])
def test_value_equals_plain_loops_on_batches_with_duplicate_images(spec, seed, size, random_pairs, make_pairs) -> None:
    similarity, ids, _ = random_pairs(seed, size)
    value = build_loss(spec)(make_pairs(similarity, ids)).value
    assert value.item() == pytest.approx(plain_loss(spec, similarity.tolist(), ids.tolist()), abs=1e-9)


def test_below_its_first_root_a_negative_is_pulled_closer_as_released(make_pairs) -> None:
    for hardest, slope in ((0.0, -0.4), (-0.5, -1.3), (0.2, 0.0), (0.3, 0.0), (0.6, 0.68)):
        h = torch.tensor([hardest], dtype=torch.float64, requires_grad=True)
        matched = torch.tensor([hardest + 0.1], dtype=torch.float64)
        used = is_used(matched, h.detach(), margin=0.2, epsilon=1e-5)
        term = universal_weighting(matched, h, used, positive=POSITIVE, negative=NEGATIVE, one_sided=False)
        assert gradient(term.sum(), h).item() == pytest.approx(slope, abs=1e-12)


def test_one_sided_never_pulls_a_negative_closer_and_keeps_the_rising_side(random_pairs, make_pairs) -> None:
    similarity, _, _ = random_pairs(7, 12)
    low = (similarity.detach() * 0.05).requires_grad_()
    off = ~torch.eye(12, dtype=torch.bool)
    pulled = gradient(build_loss(LuwmSpec())(make_pairs(low)).value, low)
    assert (pulled[off] < 0).any()
    assert (gradient(build_loss(LuwmSpec(one_sided=True))(make_pairs(low)).value, low)[off] >= 0).all()
    assert torch.equal(terms_of([0.5], [0.6], one_sided=True), terms_of([0.5], [0.6]))


def test_poor_positives_are_pulled_more_and_a_positive_of_one_is_not_used() -> None:
    p = torch.tensor([0.0, 0.5, 0.9999], dtype=torch.float64, requires_grad=True)
    terms = universal_weighting(
        p, torch.full_like(p, 0.9), torch.ones(3, dtype=torch.bool), positive=POSITIVE, negative=NEGATIVE,
        one_sided=False,
    )
    assert gradient(terms.sum(), p).tolist() == pytest.approx([-0.7, -0.5, -0.3], abs=1e-3)
    assert terms_of([1.0, 1.0 - 1e-5, 1.2], [1.0, 1.0, 1.4]).tolist() == [0, 0, 0]
