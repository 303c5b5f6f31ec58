"""What the semantic centre loss accepts, and that it is computed in the precision of its inputs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from vsetune.errors import ConfigError
from vsetune.losses.loss_base import Items, LossInputs


@pytest.mark.parametrize("centers", ["concepts", "quantised"])
def test_autocast_of_the_network_costs_no_digits(centers, make_center_loss, random_embedded_pairs) -> None:
    fields = {"quantised_centers": 3} if centers == "quantised" else {}
    loss = make_center_loss(centers=centers, **fields)
    wide = random_embedded_pairs(0)
    torch.manual_seed(0)
    expected = loss(wide).value.item()
    images, captions = wide.images.vectors.float(), wide.captions.vectors.float()
    inputs = LossInputs(
        images @ captions.T, wide.image_ids, wide.image_ids, wide.caption_rows, images=Items(images),
        captions=Items(captions),
    )
    torch.manual_seed(0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss.float()(inputs).value
    assert value.item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("missing", ["images", "captions"])
def test_embeddings_of_both_sides_are_needed(missing, make_center_loss, random_embedded_pairs) -> None:
    with pytest.raises(ConfigError, match="loss semantic_center"):
        make_center_loss()(replace(random_embedded_pairs(0), **{missing: None}))
