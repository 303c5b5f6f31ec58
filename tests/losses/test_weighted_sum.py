"""A sum of losses: values, names, and that every call of the train loop reaches every part."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from vsetune.config.component_specs import SumSpec
from vsetune.losses.loss_base import LossContext, LossInputs
from vsetune.losses.loss_building import WeightedSum, build_loss


def sum_of(**parts: dict[str, Any]) -> WeightedSum:
    """name -> fields of its loss, and perhaps `weight`."""
    plain = {
        name: {"weight": fields.get("weight", 1.0), "loss": {key: fields[key] for key in fields if key != "weight"}}
        for name, fields in parts.items()
    }
    loss = build_loss(SumSpec.model_validate({"parts": plain}), LossContext(embedding_size=4, concepts=6))
    assert isinstance(loss, WeightedSum)
    return loss.double()


def alone(**fields: Any) -> Any:
    return sum_of(only=fields).losses[0]


@pytest.fixture
def inputs(random_embedded_pairs) -> LossInputs:
    return random_embedded_pairs(0)


def test_the_value_is_the_weighted_sum_and_parts_are_logged_before_their_weight(inputs) -> None:
    both = sum_of(ranks={"name": "lmh", "weight": 0.25}, soft={"name": "info_nce", "weight": 3.0})(inputs)
    ranks, soft = alone(name="lmh")(inputs), alone(name="info_nce")(inputs)
    assert both.value.item() == pytest.approx(0.25 * ranks.value.item() + 3 * soft.value.item())
    assert both.parts["ranks"].item() == pytest.approx(ranks.value.item())
    assert both.parts["soft"].item() == pytest.approx(soft.value.item())
    assert not both.parts["soft"].requires_grad
    expected = {"ranks", "soft", *(f"ranks_{name}" for name in ranks.parts), *(f"soft_{name}" for name in soft.parts)}
    assert both.parts.keys() == expected


def test_hard_negatives_are_those_of_the_first_part_that_mines(inputs) -> None:
    assert sum_of(one={"name": "lsh"})(inputs).selection is None
    selection = sum_of(one={"name": "lsh"}, two={"name": "lmh"}, three={"name": "info_nce"})(inputs).selection
    assert selection is not None
    assert not selection.is_proxy
    swapped = sum_of(one={"name": "lsh"}, three={"name": "info_nce"}, two={"name": "lmh"})(inputs).selection
    assert swapped is not None
    assert swapped.is_proxy


def test_every_part_hears_of_epochs_and_steps(inputs) -> None:
    loss = sum_of(one={"name": "lmh", "warmup_epochs": 1}, two={"name": "lmh", "warmup_epochs": 2})
    heard: list[str] = []
    for number, part in enumerate(loss.losses):
        part.before_step = lambda number=number: heard.append(f"before {number}")
        part.after_step = lambda number=number: heard.append(f"after {number}")
    loss.start_epoch(1)
    assert loss.counter("epoch") == 1
    assert [part.is_warming_up for _, part in loss.named_parts()] == [False, True]
    assert not loss.is_warming_up, "its parts do"
    loss.before_step()
    loss.after_step()
    assert heard == ["before 0", "before 1", "after 0", "after 1"]


def test_what_the_parts_learn_is_trained_as_each_part_wants_it() -> None:
    loss = sum_of(soft={"name": "pcme"}, centers={"name": "semantic_center", "center_learning_rate": 0.125})
    groups = loss.parameter_groups()
    assert [group.sgd_rate for group in groups] == [None, 0.125, None]
    assert groups[0].parameters == [loss.losses[0].scale, loss.losses[0].shift]
    assert groups[1].parameters[0] is loss.losses[1].centers.table
    assert sum_of(one={"name": "lmh"}).parameter_groups() == []


def test_what_one_part_shares_with_the_network_the_sum_shares() -> None:
    loss = sum_of(ranks={"name": "lmh"}, soft={"name": "pcme", "scale": 3.0})
    assert {name: value.item() for name, value in loss.shared_parameters().items()} == {
        "match_scale": 3.0, "match_shift": loss.losses[1].shift.item()
    }


def test_the_next_phase_continues_part_by_part() -> None:
    before = sum_of(soft={"name": "pcme"}, ranks={"name": "lmh"})
    with torch.no_grad():
        before.losses[0].scale.fill_(7.0)
    after = sum_of(renamed={"name": "pcme"}, ranks={"name": "lmh", "margin": 0.3})
    after.continue_from(before)
    assert after.losses[0].scale.item() == 7.0


def test_a_sum_continues_from_nothing_but_a_sum() -> None:
    with pytest.raises(TypeError, match="a sum of losses cannot continue from MaxOfHinges"):
        sum_of(ranks={"name": "lmh"}).continue_from(alone(name="lmh"))
