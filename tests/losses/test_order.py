"""Order-embedding hinge: LSH or LMH on minus the order violation, with a margin of its own."""

from __future__ import annotations

import pytest
import torch

from vsetune.losses.lmh.spec import LmhSpec
from vsetune.losses.loss_building import build_loss
from vsetune.losses.lsh.spec import LshSpec
from vsetune.losses.order.spec import OrderSpec

IMAGES = torch.tensor([[0.6, 0.8], [1.0, 0.0]], dtype=torch.float64)
CAPTIONS = torch.tensor([[0.5, 0.8], [0.96, 0.28]], dtype=torch.float64)


def violations(images: torch.Tensor, captions: torch.Tensor) -> torch.Tensor:
    """-|max(0, t_j - v_i)|, entry by entry."""
    return -torch.stack([torch.stack([(t - v).clamp(min=0).norm() for t in captions]) for v in images])


def test_two_pairs_by_hand(make_pairs) -> None:
    similarity = violations(IMAGES, CAPTIONS)
    # caption 0 fits under image 0; caption 1 exceeds image 0 by (0.36, 0); image 1 by (0, 0.8) and (0, 0.28)
    torch.testing.assert_close(similarity, torch.tensor([[0, -0.36], [-0.8, -0.28]], dtype=torch.float64))
    # margin 0.3: row 1 and column 0 keep their distance; column 1 has [0.3 - 0.36 + 0.28]+ = 0.22
    for negatives in ("sum", "max"):
        output = build_loss(OrderSpec(margin=0.3, negatives=negatives))(make_pairs(similarity))
        assert output.value.item() == pytest.approx(0.22, abs=1e-12)


@pytest.mark.parametrize("variant", ["decided", "diagonal"])
@pytest.mark.parametrize(("negatives", "plain"), [("sum", LshSpec), ("max", LmhSpec)])
def test_it_is_the_plain_hinge_on_the_order_similarity(negatives, plain, variant, random_pairs, make_pairs) -> None:
    similarity, ids, _ = random_pairs(0, 9)
    inputs = make_pairs(-similarity.abs(), ids)
    order = build_loss(OrderSpec(negatives=negatives, margin=0.07, variant=variant))(inputs)
    expected = build_loss(plain(margin=0.07, variant=variant))(inputs)
    assert torch.equal(order.value, expected.value)
    assert (order.selection is None) == (negatives == "sum")


def test_it_takes_several_captions_per_image(several, several_owner, make_images) -> None:
    inputs = make_images(-several, several_owner)
    assert torch.equal(build_loss(OrderSpec(margin=0.2))(inputs).value, build_loss(LshSpec())(inputs).value)
