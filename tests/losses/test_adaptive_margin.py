"""Adaptive margins: worked distances, both readings of the ratio, windows that survive a restart."""

from __future__ import annotations

import math

import pytest
import torch
from loss_values import candidates_of
from torch import Tensor

from vsetune.losses.adaptive_margin.loss import (
    all_gaps,
    distances,
    hinge_gaps,
    mean_over_triplets,
    random_derangement,
    sampled_gaps,
)
from vsetune.losses.adaptive_margin.spec import AdaptiveMarginSpec
from vsetune.losses.loss_base import LossContext
from vsetune.losses.loss_building import build_loss
from vsetune.losses.parts.pairing import QueryTerms
from vsetune.losses.semantic_center.spec import SemanticCenterSpec

OFF = ~torch.eye(3, dtype=torch.bool)
MARGINS = torch.tensor([0.2, 0.2], dtype=torch.float64)
NEXT = torch.tensor([1, 2, 0])


def test_the_first_margin_is_that_of_image_queries() -> None:
    gaps = QueryTerms(torch.tensor([0.0, -0.25, -1.0]), torch.tensor([0.0, -0.25, -1.0]))
    hinges = hinge_gaps(gaps, margins=torch.tensor([0.5, 0.125]))
    assert hinges.images.tolist() == [0.5, 0.25, 0.0]
    assert hinges.captions.tolist() == [0.125, 0.0, 0.0]


def test_distances_of_e(e) -> None:
    expected = [[0.894427, 1.0, 1.341641], [1.183216, 1.095445, 0.948683], [1.264911, 1.048809, 0.774597]]
    actual = distances(e, squared=False)
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=torch.float64), atol=1e-6, rtol=0)
    torch.testing.assert_close(distances(e, squared=True), actual**2)


def test_all_negatives_of_e(e) -> None:
    gaps = all_gaps(candidates_of(e, OFF), e.diagonal(), squared=False)
    hinges = hinge_gaps(gaps, margins=MARGINS)
    assert hinges.images.sum().item() == pytest.approx(0.553418, abs=1e-6)
    assert hinges.captions.sum().item() == pytest.approx(0.567995, abs=1e-6)
    for gap in gaps:
        assert int(((gap + 0.2 <= 0) & gap.isfinite()).sum()) == 3
        assert int((gap + 0.2 > 0).sum()) == 3
    squared = hinge_gaps(all_gaps(candidates_of(e, OFF), e.diagonal(), squared=True), margins=MARGINS)
    assert squared.images.sum().item() == pytest.approx(0.5, abs=1e-6)
    assert squared.captions.sum().item() == pytest.approx(0.7, abs=1e-6)


def test_a_derangement_moves_everybody_and_is_drawn_from_the_global_generator() -> None:
    for size in (2, 3, 50):
        torch.manual_seed(5)
        first = random_derangement(size)
        assert sorted(first.tolist()) == list(range(size))
        assert (first != torch.arange(size)).all()
        torch.manual_seed(5)
        assert torch.equal(first, random_derangement(size))
    assert random_derangement(1).tolist() == [0]


def test_every_other_place_is_equally_likely() -> None:
    torch.manual_seed(0)
    drawn = torch.stack([random_derangement(4) for _ in range(3000)])
    shares = torch.stack([(drawn == place).double().mean(dim=0) for place in range(4)])
    assert shares.diagonal().tolist() == [0, 0, 0, 0]
    assert (shares[~torch.eye(4, dtype=torch.bool)] - 1 / 3).abs().max() < 0.04


@pytest.mark.parametrize("squared", [False, True])
def test_random_negatives_equal_plain_loops_on_duplicate_images(squared, random_pairs, make_pairs) -> None:
    similarity, ids, _ = random_pairs(2, 11)
    loss = build_loss(AdaptiveMarginSpec(squared=squared))
    torch.manual_seed(9)
    value = loss(make_pairs(similarity, ids)).value
    torch.manual_seed(9)
    captions, images = random_derangement(11).tolist(), random_derangement(11).tolist()
    s = similarity.tolist()

    def distance(row: int, column: int) -> float:
        square = 2 - 2 * s[row][column]
        return square if squared else math.sqrt(square)

    expected, respected, triplets = 0.0, [0, 0], [0, 0]
    for i in range(11):
        for direction, (row, column) in enumerate([(i, captions[i]), (images[i], i)]):
            if ids[row] == ids[column]:
                continue
            violation = distance(i, i) - distance(row, column) + 0.2
            expected += max(0.0, violation)
            respected[direction] += violation <= 0
            triplets[direction] += 1
    assert value.item() == pytest.approx(expected, abs=1e-9)
    assert loss.counted.tolist() == respected
    assert loss.triplets.tolist() == triplets


def window(loss, respected: tuple[int, int], triplets: int = 64_000) -> None:
    """Pretend that a window with these counts ends with the next step."""
    loss.counted.copy_(torch.tensor(respected))
    loss.triplets.fill_(triplets)
    loss.step.fill_(loss.spec.interval - 1)
    loss.after_step()


def test_margins_grow_separately_and_only_above_the_ratio() -> None:
    loss = build_loss(AdaptiveMarginSpec())
    window(loss, (55_000, 9_000))
    assert loss.margins.tolist() == pytest.approx([0.206, 0.2], abs=1e-12)
    window(loss, (51_200, 51_201))  # exactly 0.8 is not above 0.8
    assert loss.margins.tolist() == pytest.approx([0.206, 0.206], abs=1e-12)
    assert loss.counted.tolist() == loss.triplets.tolist() == [0, 0]
    assert loss.step == 0


def test_nothing_changes_inside_a_window_or_without_triplets() -> None:
    loss = build_loss(AdaptiveMarginSpec(interval=3, ratio=0.0))
    loss.counted.fill_(5)
    loss.triplets.fill_(5)
    for _ in range(2):
        loss.after_step()
    assert loss.margins.tolist() == [0.2, 0.2]
    loss.after_step()
    assert loss.margins.tolist() == pytest.approx([0.206, 0.206])
    for _ in range(3):
        loss.after_step()
    assert loss.margins.tolist() == pytest.approx([0.206, 0.206])


def test_margins_never_exceed_the_cap() -> None:
    loss = build_loss(AdaptiveMarginSpec(cap=0.5, margin=0.49))
    for _ in range(3):
        window(loss, (64_000, 64_000))
    assert loss.margins.tolist() == [0.5, 0.5]


def test_a_margin_that_does_not_grow_needs_no_cap() -> None:
    assert build_loss(AdaptiveMarginSpec(cap=0.3, margin=1.0, growth=1)).margins.tolist() == [1.0, 1.0]
    center = build_loss(SemanticCenterSpec(margin=1.0), LossContext(2, 3))
    assert center.margins.tolist() == [1.0, 1.0]


def evenly_normal(mean: float) -> Tensor:
    """4001 gaps D- - D+ at evenly spaced quantiles of a normal distribution with deviation 0.2."""
    quantiles = (torch.arange(4001, dtype=torch.float64) + 0.5) / 4001
    return mean + 0.2 * torch.special.ndtri(quantiles)


@pytest.mark.parametrize(
    ("variant", "mean", "margins"),
    [
        ("decided", 0.5, {18: 0.3405, 40: 0.3405}),
        ("as_printed", 0.5, {40: 0.2}),
        ("decided", 0.0, {40: 0.2}),
        ("as_printed", 0.0, {54: 0.2 * 1.03**54, 55: 0.2 * 1.03**55, 78: 0.2 * 1.03**78, 120: 6.94}),
    ],
)
def test_the_two_readings_on_a_frozen_network(variant, mean, margins) -> None:
    """Respecting: negative feedback, stops by itself. As printed: never starts, or never stops."""
    loss = build_loss(AdaptiveMarginSpec(variant=variant, cap=100.0, interval=1))
    gaps = evenly_normal(mean)
    for update in range(1, max(margins) + 1):
        violated = gaps[:, None] < loss.margins[None, :]
        loss.counted.copy_((violated if variant == "as_printed" else ~violated).sum(dim=0))
        loss.triplets.fill_(4001)
        loss.after_step()
        if update in margins:
            assert loss.margins[0].item() == pytest.approx(margins[update], abs=6e-3 if update == 120 else 5e-5)


def test_as_printed_counts_the_violations(e, make_pairs) -> None:
    respecting = build_loss(AdaptiveMarginSpec(negatives="hardest"))
    printed = build_loss(AdaptiveMarginSpec(negatives="hardest", variant="as_printed"))
    respecting(make_pairs(e))
    printed(make_pairs(e))
    assert respecting.triplets.tolist() == printed.triplets.tolist() == [3, 3]
    assert (respecting.counted + printed.counted).tolist() == [3, 3]
    assert printed.counted.tolist() == [2, 2]


def test_evaluation_mode_counts_nothing(e, make_pairs) -> None:
    loss = build_loss(AdaptiveMarginSpec()).eval()
    loss(make_pairs(e))
    assert loss.triplets.tolist() == [0, 0]


def test_margins_are_reported_per_direction(e, make_pairs) -> None:
    loss = build_loss(AdaptiveMarginSpec())
    window(loss, (64_000, 0))
    parts = loss(make_pairs(e)).parts
    assert parts["margin_images"].item() == pytest.approx(0.206)
    assert parts["margin_captions"].item() == pytest.approx(0.2)


def test_the_state_keeps_its_names() -> None:
    assert set(build_loss(AdaptiveMarginSpec()).state_dict()) == {"epoch", "margins", "counted", "triplets", "step"}


def test_a_mean_divides_by_the_triplets_of_its_direction(random_pairs) -> None:
    similarity, _, _ = random_pairs(1, 3)
    negatives = torch.tensor([[False, True, False], [True, False, False], [False, False, False]])
    gaps = sampled_gaps(similarity, negatives, image_negatives=NEXT, caption_negatives=NEXT, squared=False)
    hinges = hinge_gaps(gaps, margins=MARGINS)
    assert gaps.images.isfinite().tolist() == [True, False, False]
    assert gaps.captions.isfinite().tolist() == [True, False, False]
    assert mean_over_triplets(hinges, gaps).item() == pytest.approx(hinges.total().item())
    none = sampled_gaps(similarity, ~OFF & OFF, image_negatives=NEXT, caption_negatives=NEXT, squared=False)
    assert mean_over_triplets(hinge_gaps(none, margins=MARGINS), none).item() == 0
