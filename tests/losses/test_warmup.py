"""Warm-up epochs with the sum of hinges."""

from __future__ import annotations

import pytest
import torch

from vsetune.losses.adaptive_margin.spec import AdaptiveMarginSpec
from vsetune.losses.irtm.spec import IrtmSpec
from vsetune.losses.lmh.spec import LmhSpec
from vsetune.losses.loss_building import build_loss
from vsetune.losses.lseh.spec import LsehSpec
from vsetune.losses.lsh.spec import LshSpec
from vsetune.losses.luwm.spec import LuwmSpec
from vsetune.losses.order.spec import OrderSpec
from vsetune.losses.pvse.spec import PvseSpec
from vsetune.losses.top_f.spec import TopFSpec


@pytest.mark.parametrize(("spec", "settings", "variants"), [
    (LmhSpec, {}, {"decided": "decided", "diagonal": "diagonal"}), (LuwmSpec, {}, {"decided": "decided"}),
    (IrtmSpec, {}, {"diagonal": "diagonal"}), (OrderSpec, {"margin": 0.2, "negatives": "max"}, {"decided": "decided"}),
    (LsehSpec, {"margin": 0.2}, {"decided": "decided", "diagonal": "diagonal", "released": "diagonal"}),
    (PvseSpec, {"margin": 0.2}, {"decided": "decided"}),
])
def test_hinge_losses_warm_up_with_lsh_and_go_on_as_themselves(
    spec, settings, variants, random_pairs, make_pairs
) -> None:
    similarity, ids, vectors = random_pairs(2, 9)
    inputs = make_pairs(similarity, ids, vectors)
    for variant, plain in variants.items():
        loss = build_loss(spec(warmup_epochs=2, variant=variant, **settings))
        sums = build_loss(LshSpec(variant=plain))(inputs).value
        if spec is PvseSpec:
            sums = build_loss(PvseSpec(variant=plain, negatives="sum", **settings))(inputs).value
        for epoch in (0, 1):
            loss.start_epoch(epoch)
            assert torch.equal(loss(inputs).value, sums)
            assert loss(inputs).selection is None
        loss.start_epoch(2)
        assert torch.equal(loss(inputs).value, build_loss(spec(variant=variant, **settings))(inputs).value)
        assert not torch.equal(loss(inputs).value, sums)


def test_a_loaded_loss_that_has_warmed_up_does_not_warm_up_again(e, make_pairs) -> None:
    before = build_loss(LmhSpec(warmup_epochs=1))
    before.start_epoch(1)
    after = build_loss(LmhSpec(warmup_epochs=1))
    assert after.is_warming_up
    after.load_state_dict(before.state_dict())
    assert not after.is_warming_up
    assert after(make_pairs(e)).value.item() == pytest.approx(0.80)


def test_top_f_warms_up_with_the_sum_of_hinges_and_keeps_its_fraction(e, make_pairs) -> None:
    loss = build_loss(TopFSpec(warmup_epochs=1, decay_steps=4))
    loss.start_epoch(0)
    assert loss(make_pairs(e)).value.item() == pytest.approx(1.15)
    loss.after_step()
    loss.start_epoch(1)
    assert loss(make_pairs(e)).parts["fraction"].item() == 1.0


def test_adaptive_margin_warms_up_with_all_negatives_and_frozen_margins(e, make_pairs) -> None:
    loss = build_loss(AdaptiveMarginSpec(warmup_epochs=1, interval=1, ratio=0.0))
    loss.start_epoch(0)
    assert loss(make_pairs(e)).value.item() == pytest.approx(0.553418 + 0.567995, abs=1e-6)
    loss.after_step()
    assert loss.margins.tolist() == [0.2, 0.2]
    assert loss.step == 0


@pytest.mark.parametrize(("negatives", "epoch", "mines"), [("hardest", 0, False), ("hardest", 1, True),
                                                           ("random", 1, False)])
def test_adaptive_margin_mines_hardest_negatives_after_its_warmup(negatives, epoch, mines, e, make_pairs) -> None:
    loss = build_loss(AdaptiveMarginSpec(warmup_epochs=1, negatives=negatives))
    loss.start_epoch(epoch)
    assert (loss(make_pairs(e)).selection is not None) == mines
