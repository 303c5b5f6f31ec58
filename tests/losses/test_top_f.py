"""Top-f triplets: worked numbers of one and of several positives, schedules, plain loops, edge cases."""

from __future__ import annotations

import math

import pytest
import torch
from loss_values import pools_of
from torch import Tensor

from vsetune.losses.lmh.spec import LmhSpec
from vsetune.losses.loss_building import build_loss
from vsetune.losses.lsh.spec import LshSpec
from vsetune.losses.top_f.loss import (
    ActiveTriplets,
    both_directions,
    hardest_count,
    mean_of_anchors,
    sum_of_all_triplets,
    top_fraction,
)
from vsetune.losses.top_f.spec import TopFSpec

SEVERAL_POSITIVES = torch.tensor([[1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 1]], dtype=torch.bool)


def loss_of(similarity: Tensor, positives: Tensor, fraction: float, margin: float = 0.2) -> Tensor:
    return masked_loss(similarity, positives, ~positives, fraction, margin)


def masked_loss(
    similarity: Tensor, positives: Tensor, negatives: Tensor, fraction: float, margin: float = 0.2
) -> Tensor:
    met = pools_of(similarity, negatives)
    images, captions = both_directions(met, positives, margin=margin, fraction=fraction)
    return mean_of_anchors(met, images, captions, margin=margin)


def anchor_means(similarity: Tensor, triplets: ActiveTriplets) -> list[float]:
    """Mean hinge of each row over the triplets that it uses, at margin 0.2."""
    means = ((similarity * triplets.counts).sum(dim=1) + 0.2 * triplets.active) * triplets.shares()
    return means.tolist()


def plain_loss(s: list[list[float]], positives: list[list[bool]], fraction: float, margin: float) -> float:
    """The definition, anchor by anchor."""
    total = 0.0
    for scores, matches in ((s, positives), (list(zip(*s)), list(zip(*positives)))):  # noqa: B905
        anchors = []
        for row, match in zip(scores, matches, strict=True):
            low = sorted(value for value, is_own in zip(row, match, strict=True) if is_own)
            high = sorted((value for value, is_own in zip(row, match, strict=True) if not is_own), reverse=True)
            if not low or not high:
                continue
            low = low[: max(1, math.ceil(fraction * len(low) - 1e-9))]
            high = high[: max(1, math.ceil(fraction * len(high) - 1e-9))]
            hinges = [max(0.0, negative + margin - positive) for negative in high for positive in low]
            anchors.append(sum(hinges) / len(hinges))
        if anchors:
            total += sum(anchors) / len(anchors) / margin
    return total / 2


@pytest.mark.parametrize(
    ("fraction", "images", "captions", "total"),
    [
        (1, [0.066667, 0.0375, 0.016667], [0, 0.075, 0.05, 0.15, 0], 0.238194),
        (0.5, [0.2, 0.075, 0.05], [0, 0.1, 0.1, 0.3, 0], 0.520833),
        (0.3, [0.3, 0.075, 0.1], [0, 0.1, 0.1, 0.3, 0], 0.645833),
        (0, [0.3, 0.15, 0.1], [0, 0.1, 0.1, 0.3, 0], 0.708333),
    ],
)
def test_anchors_of_the_worked_example(fraction, images, captions, total, several, several_owner, make_images) -> None:
    matches = SEVERAL_POSITIVES
    i2t, t2i = both_directions(pools_of(several, ~matches), matches, margin=0.2, fraction=fraction)
    assert anchor_means(several, i2t) == pytest.approx(images, abs=1e-6)
    assert anchor_means(several.T, t2i) == pytest.approx(captions, abs=1e-6)
    assert loss_of(several, matches, fraction).item() == pytest.approx(total, abs=1e-6)
    output = build_loss(TopFSpec(decay="linear", decay_steps=10))
    output.steps.fill_(round(10 * (1 - fraction)))
    assert output(make_images(several, several_owner)).value.item() == pytest.approx(total, abs=1e-6)


def test_one_caption_per_image_gives_lsh_at_fraction_one_and_lmh_at_zero(e, random_pairs, make_pairs) -> None:
    eye = torch.eye(3, dtype=torch.bool)
    assert loss_of(e, eye, 0.0).item() == pytest.approx(0.666667, abs=1e-6)
    assert loss_of(e, eye, 1.0).item() == pytest.approx(0.479167, abs=1e-6)
    similarity, _, _ = random_pairs(0, 7)
    eye = torch.eye(7, dtype=torch.bool)
    lsh = build_loss(LshSpec(margin=0.3))(make_pairs(similarity)).value.item()
    lmh = build_loss(LmhSpec(margin=0.3))(make_pairs(similarity)).value.item()
    assert loss_of(similarity, eye, 1.0, 0.3).item() == pytest.approx(lsh / (2 * 7 * 6 * 0.3), abs=1e-12)
    assert loss_of(similarity, eye, 0.0, 0.3).item() == pytest.approx(lmh / (2 * 7 * 0.3), abs=1e-12)
    total = sum_of_all_triplets(pools_of(similarity, ~eye), eye, margin=0.3)
    assert total.item() == pytest.approx(lsh, abs=1e-12)


SCHEDULE = {
    "hyperbolic": [1, 0.853448, 0.527778, 0.346154, 0.190476, 0.15, 0.055556, 0.019231, 0],
    "cosine": [1, 0.984293, 0.921541, 0.843566, 0.690983, 0.617317, 0.292893, 0.076120, 0],
    "linear": [1, 0.99, 0.95, 0.9, 0.8, 0.75, 0.5, 0.25, 0],
}


@pytest.mark.parametrize("decay", list(SCHEDULE))
def test_schedules_follow_their_table_and_stay_at_the_end(decay) -> None:
    for step, expected in zip([0, 1, 5, 10, 20, 25, 50, 75, 100], SCHEDULE[decay], strict=True):
        fraction = top_fraction(step, decay=decay, decay_steps=100, sharpness=16, min_fraction=0)
        assert fraction == pytest.approx(expected, abs=1e-6)
    assert top_fraction(250, decay=decay, decay_steps=100, sharpness=16, min_fraction=0) == 0
    assert top_fraction(250, decay=decay, decay_steps=100, sharpness=16, min_fraction=0.1) == 0.1


def test_a_fraction_a_hair_above_an_integer_does_not_take_one_more() -> None:
    assert 0.07 * 100 > 7
    assert hardest_count(100, 0.07) == 7
    assert hardest_count(100, 0.071) == 8
    assert hardest_count(100, 0.0) == 1


def test_the_first_step_uses_fraction_one_and_each_step_moves_it(e, make_pairs) -> None:
    loss = build_loss(TopFSpec(decay="linear", decay_steps=4))
    seen = []
    for _ in range(6):
        seen.append(loss(make_pairs(e)).parts["fraction"].item())
        loss.after_step()
    assert seen == [1, 0.75, 0.5, 0.25, 0, 0]


@pytest.mark.parametrize("fraction", [0.0, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(2))
def test_value_equals_plain_loops_for_any_number_of_captions_per_image(fraction, seed) -> None:
    generator = torch.Generator().manual_seed(seed)
    owner = torch.randint(6, (17,), generator=generator)  # some images may have no caption: skipped as anchors
    positives = torch.arange(6)[:, None] == owner[None, :]
    similarity = torch.rand(6, 17, generator=generator, dtype=torch.float64)
    expected = plain_loss(similarity.tolist(), positives.tolist(), fraction, 0.25)
    assert loss_of(similarity, positives, fraction, 0.25).item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("fraction", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("values", [2, 5, None])
def test_sorting_counts_the_same_triplets_as_one_positive_after_the_other(fraction, values, monkeypatch) -> None:
    generator = torch.Generator().manual_seed(4)
    positives = torch.arange(3)[:, None] == torch.tensor([0] * 40 + [1] * 5 + [2] * 20)[None, :]
    similarity = torch.rand(3, 65, generator=generator, dtype=torch.float64)
    if values:  # many ties
        similarity = (similarity * values).floor() / 5
    for matrix, matches in ((similarity, positives), (similarity.T.contiguous(), positives.T)):
        found = []
        for most in (0, 1000):
            monkeypatch.setattr("vsetune.losses.top_f.loss._MOST_POSITIVES_ONE_BY_ONE", most)
            found.append(both_directions(pools_of(matrix, ~matches), matches, margin=0.2, fraction=fraction)[0])
        for sorted_out, one_by_one in zip(*found, strict=True):
            assert torch.equal(sorted_out, one_by_one)
    expected = plain_loss(similarity.tolist(), positives.tolist(), fraction, 0.2)
    assert loss_of(similarity, positives, fraction).item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("fraction", [0.0, 0.5])
def test_on_a_tie_as_many_entries_are_used_as_without_one(fraction) -> None:
    positives = torch.arange(3)[:, None] == torch.arange(12)[None, :] // 4
    similarity = torch.full((3, 12), 0.3, dtype=torch.float64)
    met = pools_of(similarity, ~positives)
    images, captions = both_directions(met, positives, margin=0.2, fraction=fraction)
    used_positives, used_negatives = hardest_count(4, fraction), hardest_count(8, fraction)
    assert (images.counts > 0).sum(dim=1).tolist() == [used_negatives] * 3
    assert (images.counts < 0).sum(dim=1).tolist() == [used_positives] * 3
    assert images.used.tolist() == images.active.tolist() == [used_positives * used_negatives] * 3
    assert (captions.counts > 0).sum(dim=1).tolist() == [1] * 12


def test_selection_is_a_proxy_until_the_fraction_is_zero(several, several_owner, make_images) -> None:
    loss = build_loss(TopFSpec(decay="linear", decay_steps=1))
    assert loss(make_images(several, several_owner)).selection.is_proxy
    loss.after_step()
    selection = loss(make_images(several, several_owner)).selection
    assert not selection.is_proxy
    assert torch.equal(selection.negatives, ~SEVERAL_POSITIVES)
    assert selection.active_images.tolist() == [True, True, True]
    assert selection.active_captions.tolist() == [False, True, True, True, False]
