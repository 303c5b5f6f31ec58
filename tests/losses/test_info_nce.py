"""InfoNCE: worked numbers, plain loops, several positives, learned temperature, edge cases."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from vsetune.losses.info_nce.loss import info_nce, smoothed_terms, softmax_terms
from vsetune.losses.info_nce.spec import InfoNceSpec
from vsetune.losses.loss_building import build_loss

EYE = torch.eye(3, dtype=torch.bool)
SEVERAL_POSITIVES = torch.tensor([[1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 1]], dtype=torch.bool)


def direction(logits: Tensor, positives: Tensor, negatives: Tensor, *, sum_inside: bool = False) -> float:
    terms, valid = softmax_terms(logits, positives, negatives, sum_inside=sum_inside)
    return (terms.sum() / valid.sum()).item()


Bools = list[list[bool]]


def plain_direction(
    s: list[list[float]], positive: Bools, negative: Bools, t: float, inside: bool, smoothing: float = 0.0
) -> float:
    terms = []
    for row, is_positive, is_negative in zip(s, positive, negative, strict=True):
        own = [math.exp(x / t) for x, used in zip(row, is_positive, strict=True) if used]
        others = [math.exp(x / t) for x, used in zip(row, is_negative, strict=True) if used]
        if own and others:
            everything = sum(own) + sum(others)
            outside = sum(-math.log(p / everything) for p in own) / len(own)
            even = sum(-math.log(p / everything) for p in own + others) / len(own + others)
            matched = -math.log(sum(own) / everything) if inside else outside
            terms.append((1 - smoothing) * matched + smoothing * even)
    return sum(terms) / len(terms) if terms else 0.0


@pytest.mark.parametrize(
    ("temperature", "i2t", "t2i", "total"), [(0.1, 0.723214, 0.649864, 0.686539), (0.07, 0.840868, 0.701415, 0.771142)]
)
def test_worked_values_of_e(temperature, i2t, t2i, total, e, make_pairs) -> None:
    assert direction(e / temperature, EYE, ~EYE) == pytest.approx(i2t, abs=1e-6)
    assert direction(e.T / temperature, EYE, ~EYE) == pytest.approx(t2i, abs=1e-6)
    value = build_loss(InfoNceSpec(softmax_temperature=temperature))(make_pairs(e)).value
    assert value.item() == pytest.approx(total, abs=1e-6)


def test_several_positives_outside_and_inside_the_logarithm(several, several_owner, make_images) -> None:
    logits, matches = several / 0.1, SEVERAL_POSITIVES
    assert direction(logits, matches, ~matches) == pytest.approx(1.131281, abs=1e-6)
    assert direction(logits.T, matches.T, ~matches.T) == pytest.approx(0.439717, abs=1e-6)
    assert direction(logits, matches, ~matches, sum_inside=True) == pytest.approx(0.239443, abs=1e-6)
    inputs = make_images(several, several_owner)
    outside = build_loss(InfoNceSpec(softmax_temperature=0.1))(inputs).value
    assert outside.item() == pytest.approx(0.785499, abs=1e-6)
    inside = build_loss(InfoNceSpec(softmax_temperature=0.1, positives="inside"))(inputs).value
    assert inside.item() == pytest.approx((0.239443 + 0.439717) / 2, abs=1e-6)


@pytest.mark.parametrize("variant", ["decided", "diagonal"])
@pytest.mark.parametrize("positives", ["outside", "inside"])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_pairs_equal_plain_loops_on_duplicate_images(
    variant, positives, label_smoothing, random_pairs, make_pairs
) -> None:
    similarity, ids, _ = random_pairs(1, 9)
    eye = torch.eye(9, dtype=torch.bool)
    negatives = ~eye if variant == "diagonal" else ids[:, None] != ids[None, :]
    expected = 0.0
    for s, p, n in ((similarity, eye, negatives), (similarity.T, eye, negatives.T)):
        rows = s.tolist(), p.tolist(), n.tolist()
        expected += plain_direction(*rows, 0.2, positives == "inside", label_smoothing) / 2
    spec = InfoNceSpec(
        softmax_temperature=0.2, variant=variant, positives=positives, label_smoothing=label_smoothing
    )
    assert build_loss(spec)(make_pairs(similarity, ids)).value.item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("seed", range(2))
def test_any_positives_negatives_and_ignored_pairs_equal_plain_loops(inside, smoothing, seed) -> None:
    generator = torch.Generator().manual_seed(seed)
    similarity = torch.rand(6, 9, generator=generator, dtype=torch.float64)
    kind = torch.randint(3, (6, 9), generator=generator)
    kind[0], kind[1] = 0, 1  # a row without positives, a row without negatives
    positives, negatives = kind == 1, kind == 0
    settings = {"sum_inside": inside, "label_smoothing": smoothing}
    terms, valid = smoothed_terms(similarity / 0.3, positives, negatives, **settings)
    expected = plain_direction(similarity.tolist(), positives.tolist(), negatives.tolist(), 0.3, inside, smoothing)
    assert terms[~valid].tolist() == [0] * int((~valid).sum())
    assert (terms.sum() / valid.sum()).item() == pytest.approx(expected, abs=1e-9)


def test_a_learned_temperature_starts_where_the_fixed_one_stands(e, make_pairs) -> None:
    fixed, learned = build_loss(InfoNceSpec()), build_loss(InfoNceSpec(learned=True))
    assert learned.log_scale.item() == pytest.approx(2.659260)
    assert learned(make_pairs(e)).value.item() == pytest.approx(fixed(make_pairs(e)).value.item(), abs=1e-6)
    assert list(fixed.parameters()) == []
    assert set(learned.state_dict()) == {"epoch", "log_scale"}
    assert fixed(make_pairs(e)).parts["temperature"].item() == pytest.approx(0.07)


def test_a_learned_scale_is_capped_at_100_and_can_come_back(e, make_pairs) -> None:
    loss = build_loss(InfoNceSpec(learned=True))
    with torch.no_grad():
        loss.log_scale.fill_(9.0)
    assert loss(make_pairs(e)).parts["temperature"].item() == pytest.approx(0.01)
    loss.after_step()
    assert loss.log_scale.item() == pytest.approx(math.log(100))
    loss(make_pairs(e)).value.backward()
    assert loss.log_scale.grad.item() != 0
    assert build_loss(InfoNceSpec(learned=True, softmax_temperature=0.001)).log_scale.item() == pytest.approx(
        math.log(100)
    )


def test_a_query_without_negatives_has_no_part_in_the_mean_of_its_direction() -> None:
    """Image 0 and caption 1 have positives alone: image 1 and caption 0 count."""
    logits = torch.tensor([[1.0, 2.0], [0.5, 3.0]], dtype=torch.float64)
    positives = torch.tensor([[True, True], [False, True]])
    value = info_nce(logits, positives, ~positives, sum_inside=False, label_smoothing=0.0)
    first_caption = -math.log(math.exp(1.0) / (math.exp(1.0) + math.exp(0.5)))
    second_image = -math.log(math.exp(3.0) / (math.exp(3.0) + math.exp(0.5)))
    assert value.item() == pytest.approx((second_image + first_caption) / 2)
