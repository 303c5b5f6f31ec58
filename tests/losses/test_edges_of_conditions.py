"""The very value at which a condition of a loss changes its answer."""

from __future__ import annotations

import pytest
import torch
from loss_values import pools_of

from vsetune.losses.loss_base import Items
from vsetune.losses.loss_building import build_loss
from vsetune.losses.parts.pairing import QueryTerms, mined_selection
from vsetune.losses.pcme.loss import uniformity
from vsetune.losses.pcme.spec import PcmeSpec
from vsetune.losses.top_f.loss import both_directions


def test_a_hinge_of_exactly_zero_is_not_active(e, make_pairs) -> None:
    inputs = make_pairs(e)
    hinges = QueryTerms(torch.tensor([0.0, 0.1, 0.0]), torch.tensor([0.2, 0.0, 1e-9]))
    selection = mined_selection(inputs, e, ~torch.eye(3, dtype=torch.bool), hinges.active())
    assert selection.active_images.tolist() == [False, True, False]
    assert selection.active_captions.tolist() == [True, False, True]
    assert not selection.is_proxy


def test_released_uniformity_takes_128_samples_as_they_are(random_embedded_pairs) -> None:
    inputs = random_embedded_pairs(0, pairs=64)
    spec = PcmeSpec(variant="released", samples=1, uniformity_weight=1.0, kl_weight=0.0)
    both = torch.cat([items.vectors for items in (inputs.images, inputs.captions) if isinstance(items, Items)])
    assert build_loss(spec)(inputs).parts["uniformity"].item() == pytest.approx(uniformity(both).item(), abs=1e-12)


@pytest.mark.parametrize("one_by_one", [0, 128])
def test_the_first_negative_left_out_does_not_count_however_close_it_is(one_by_one, monkeypatch) -> None:
    """Two of four negatives are used; the third is the next smaller float."""
    monkeypatch.setattr("vsetune.losses.top_f.loss._MOST_POSITIVES_ONE_BY_ONE", one_by_one)
    half = torch.tensor(0.5, dtype=torch.float64)
    row = torch.stack([half - 0.3, half, half + 0.4, torch.nextafter(half, half - 1), half - 0.4])[None]
    positives = torch.tensor([[True, False, False, False, False]])
    found, _ = both_directions(pools_of(row, ~positives), positives, margin=0.0, fraction=0.5)
    assert found.counts.tolist() == [[-2, 1, 1, 0, 0]]
    assert (found.active.tolist(), found.used.tolist()) == ([2], [2])
