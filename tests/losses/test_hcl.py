"""Hard-negative InfoNCE: worked numbers, plain loops, InfoNCE as a limit, the floor, extremes."""

from __future__ import annotations

import math

import pytest
import torch

from vsetune.losses.hcl.spec import HclSpec
from vsetune.losses.info_nce.spec import InfoNceSpec
from vsetune.losses.loss_building import build_loss


def plain_direction(rows, is_negative, *, t, beta, tau) -> float:
    terms = []
    for i, row in enumerate(rows):
        scores = [math.exp(score / t) for j, score in enumerate(row) if is_negative[i][j]]
        if scores:
            pair, count = math.exp(row[i] / t), len(scores)
            weights = [score**beta for score in scores]
            hard = sum(w * n for w, n in zip(weights, scores, strict=True)) / (sum(weights) / count)
            against = max((hard - tau * count * pair) / (1 - tau), count * math.exp(-1 / t))
            terms.append(-math.log(pair / (pair + against)))
    return sum(terms) / len(terms) if terms else 0.0


def plain(similarity, ids, *, t, beta, tau, variant="decided") -> float:
    size = len(similarity)
    negative = [[i != j and (variant == "diagonal" or ids[i] != ids[j]) for j in range(size)] for i in range(size)]
    rows = similarity.tolist()
    columns = [list(column) for column in zip(*rows, strict=True)]
    settings = {"t": t, "beta": beta, "tau": tau}
    return (plain_direction(rows, negative, **settings) + plain_direction(columns, negative, **settings)) / 2


def test_a_value_by_hand(make_pairs) -> None:
    # t = 1, beta = 1; both rows and columns: p = e^0.5, n = 1 (one negative of similarity 0), G = (1 - 0.1 p) / 0.9
    similarity = torch.tensor([[0.5, 0.0], [0.0, 0.5]], dtype=torch.float64)
    pair = math.exp(0.5)
    by_hand = -math.log(pair / (pair + (1 - 0.1 * pair) / 0.9))
    value = build_loss(HclSpec(softmax_temperature=1.0))(make_pairs(similarity)).value
    assert value.item() == pytest.approx(by_hand, abs=1e-12)


@pytest.mark.parametrize("variant", ["decided", "diagonal"])
@pytest.mark.parametrize(("t", "beta", "tau"), [(0.5, 1.0, 0.1), (0.1, 2.0, 0.0), (0.2, 0.0, 0.3), (0.07, 0.5, 0.05)])
@pytest.mark.parametrize("seed", range(2))
def test_value_equals_plain_loops_on_duplicate_images(seed, t, beta, tau, variant, random_pairs, make_pairs) -> None:
    similarity, ids, _ = random_pairs(seed, 8)
    spec = HclSpec(softmax_temperature=t, beta=beta, tau_plus=tau, variant=variant)
    value = build_loss(spec)(make_pairs(similarity, ids)).value.item()
    assert value == pytest.approx(plain(similarity, ids, t=t, beta=beta, tau=tau, variant=variant), abs=1e-9)


@pytest.mark.parametrize("seed", range(2))
def test_without_weights_and_correction_it_is_info_nce(seed, random_pairs, make_pairs) -> None:
    inputs = make_pairs(*random_pairs(seed, 8)[:2])
    value = build_loss(HclSpec(beta=0.0, tau_plus=0.0))(inputs).value.item()
    assert value == pytest.approx(build_loss(InfoNceSpec())(inputs).value.item(), abs=1e-9)


def test_far_negatives_reach_the_floor_and_get_no_gradient(make_pairs) -> None:
    similarity = torch.tensor([[0.9, -0.9], [-0.9, 0.9]], dtype=torch.float64, requires_grad=True)
    value = build_loss(HclSpec(softmax_temperature=0.5))(make_pairs(similarity)).value
    floor = math.log1p(math.exp((-1 - 0.9) / 0.5))
    assert value.item() == pytest.approx(floor, abs=1e-12)
    (slope,) = torch.autograd.grad(value, similarity)
    assert slope[0, 1] == slope[1, 0] == 0
    assert (slope.diagonal() < 0).all()
