"""Semantic centre loss over time: evaluation, phases, what learns with whom, resuming."""

from __future__ import annotations

import pytest
import torch
from loss_values import gradient

from vsetune.losses.adaptive_margin.spec import AdaptiveMarginSpec
from vsetune.losses.loss_building import build_loss

CENTER_ONLY = {"triplet_weight": 0.0, "image_class_weight": 0.0, "caption_class_weight": 0.0}


def test_evaluation_moves_and_remembers_nothing(make_center_loss, random_embedded_pairs) -> None:
    for centers in ("concepts", "quantised"):
        loss = make_center_loss(centers=centers, quantised_centers=3, adaptive=True).eval()
        before = {name: value.clone() for name, value in loss.state_dict().items()}
        loss(random_embedded_pairs(12))
        loss.before_step()
        assert loss.centers.table.grad is None
        for name, value in loss.state_dict().items():
            assert torch.equal(value, before[name]), name


def test_three_phases_hand_everything_on(
    make_center_loss, random_embedded_pairs, embedded_pairs, center_step, trained_concepts
) -> None:
    first = trained_concepts()
    second = make_center_loss(concepts=8, centers="quantised", quantised_centers=3, train_classifiers=False)
    second.continue_from(first)
    classifier = second.image_classifier.weight.detach().clone()
    for seed in range(3):
        center_step(second, random_embedded_pairs(seed, 6, 8))
    assert torch.equal(second.image_classifier.weight, classifier)
    third = make_center_loss(concepts=8, centers="quantised", quantised_centers=3, adaptive=True, interval=1, ratio=0.0)
    third.continue_from(second)
    assert third.centers.steps == 3
    for name, value in second.state_dict().items():
        assert torch.equal(third.state_dict()[name], value), name
    assert third.image_classifier.weight.requires_grad
    assert third.margins.tolist() == [0.2, 0.2]
    apart = torch.eye(4, dtype=torch.float64).requires_grad_()
    center_step(third, embedded_pairs(apart, apart, [0, 1, 2, 3]))
    assert third.margins.tolist() == pytest.approx([0.206, 0.206])
    fourth = make_center_loss(concepts=8, centers="quantised", quantised_centers=3, adaptive=True, cap=0.203)
    fourth.continue_from(third)
    assert fourth.margins.tolist() == pytest.approx([0.203, 0.203])


def test_margins_that_never_grew_leave_the_next_phase_its_own(make_center_loss, trained_concepts) -> None:
    second = make_center_loss(concepts=8, margin=0.3)
    second.continue_from(trained_concepts(margin=0.2))
    assert second.margins.tolist() == [0.3, 0.3]
    assert second.centers.seen.all()


def test_margins_stay_unless_the_phase_is_adaptive(make_center_loss, embedded_pairs, center_step) -> None:
    loss = make_center_loss(concepts=4, interval=1, ratio=0.0)
    points = torch.eye(4, dtype=torch.float64).requires_grad_()
    for _ in range(3):
        center_step(loss, embedded_pairs(points, points, [0, 1, 2, 3]))
    assert loss.margins.tolist() == [0.2, 0.2]
    assert loss.triplets.tolist() == [0, 0]


def test_another_loss_hands_nothing_on(make_center_loss) -> None:
    loss = make_center_loss()
    before = {name: value.clone() for name, value in loss.state_dict().items()}
    loss.continue_from(build_loss(AdaptiveMarginSpec(margin=0.1)))
    for name, value in loss.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize("centers", ["concepts", "quantised"])
@pytest.mark.parametrize("train_classifiers", [True, False])
def test_centres_learn_at_their_own_rate_and_the_rest_with_the_network(
    centers, train_classifiers, make_center_loss
) -> None:
    loss = make_center_loss(
        centers=centers, quantised_centers=3, train_classifiers=train_classifiers, center_learning_rate=0.25
    )
    groups = {group.sgd_rate: group.parameters for group in loss.parameter_groups()}
    assert all(groups.values()), "no empty group"
    assert [parameter is loss.centers.table for parameter in groups[0.25]] == [True]
    expected = (4 if train_classifiers else 0) + (2 if centers == "quantised" else 0)
    assert len(groups.get(None, [])) == expected
    assert all(parameter.requires_grad for parameter in groups.get(None, []))


def test_the_assignment_learns_from_the_centre_term_alone(make_center_loss, random_embedded_pairs) -> None:
    with_it = make_center_loss(centers="quantised", quantised_centers=3, repulsion_every=1)
    with_it(random_embedded_pairs(7)).value.backward()
    alone = make_center_loss(centers="quantised", quantised_centers=3, **CENTER_ONLY)
    alone(random_embedded_pairs(7)).value.backward()
    torch.testing.assert_close(with_it.centers.assignment.weight.grad, alone.centers.assignment.weight.grad)
    assert alone.centers.assignment.weight.grad.abs().max() > 0


def test_frozen_classifiers_still_teach_the_network(make_center_loss, random_embedded_pairs) -> None:
    loss = make_center_loss(train_classifiers=False, center_weight=0.0, triplet_weight=0.0)
    inputs = random_embedded_pairs(2)
    assert gradient(loss(inputs).value, inputs.images.vectors).abs().max() > 0


@pytest.mark.parametrize("centers", ["concepts", "quantised"])
def test_a_frozen_network_leaves_something_to_step_on(
    centers, make_center_loss, random_embedded_pairs, embedded_pairs, center_step
) -> None:
    loss = make_center_loss(centers=centers, quantised_centers=3, train_classifiers=False, delta=0.0)
    inputs = random_embedded_pairs(2)
    before = loss.centers.table.detach().clone()
    for _ in range(2):
        images, captions = inputs.images.vectors.detach(), inputs.captions.vectors.detach()
        center_step(loss, embedded_pairs(images, captions, inputs.image_ids))
    assert not torch.equal(loss.centers.table.detach(), before)
