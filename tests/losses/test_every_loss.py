"""What holds for every loss, whatever its formula."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from vsetune.losses.loss_base import Items, Loss, LossContext, LossInputs
from vsetune.losses.loss_building import build_loss
from vsetune.losses.loss_catalogue import LOSSES
from vsetune.losses.weighted_sum.sum_spec import SumSpec

SIZE, D = 6, 4


def built(name: str) -> Loss:
    if name == "sum":
        parts = {part: {"loss": {"name": part}} for part in ("lmh", "info_nce")}
        return build_loss(SumSpec.model_validate({"parts": parts}), LossContext(D, SIZE))
    small = {"quantised_centers": 2} if name == "semantic_center" else {}
    return build_loss(LOSSES[name].model_validate({"name": name, **small}), LossContext(D, SIZE))


def inputs(similarity: Tensor, ids: list[int]) -> LossInputs:
    generator = torch.Generator().manual_seed(1)
    images, captions = (
        torch.nn.functional.normalize(torch.randn(SIZE, D, generator=generator), dim=1).requires_grad_()
        for _ in range(2)
    )
    image_ids = torch.tensor(ids)
    return LossInputs(
        similarity, image_ids, image_ids, torch.arange(SIZE), torch.randn(SIZE, 3, generator=generator),
        images=Items(images), captions=Items(captions),
    )


@pytest.mark.parametrize("name", [*LOSSES, "sum"])
def test_one_nan_anywhere_in_the_similarity_never_gives_a_finite_loss(name: str) -> None:
    similarity = torch.rand(SIZE, SIZE, generator=torch.Generator().manual_seed(0)) - 0.5
    ids = [0, 0, 1, 2, 3, 4]  # entries (0, 1) and (1, 0) are ignored by most losses
    loss = built(name)
    loss.start_epoch(0)
    assert math.isfinite(loss(inputs(similarity, ids)).value.detach())
    for place in range(SIZE * SIZE):
        broken = similarity.clone()
        broken.view(-1)[place] = math.nan
        assert not math.isfinite(loss(inputs(broken, ids)).value.detach()), f"entry {divmod(place, SIZE)}"


@pytest.mark.parametrize("name", [*LOSSES, "sum"])
def test_a_loaded_loss_knows_the_epoch_it_was_saved_in(name: str) -> None:
    loss, other = built(name), built(name)
    loss.start_epoch(3)
    other.start_epoch(1)
    assert other.counter("epoch") == 1
    other.load_state_dict(loss.state_dict())
    assert other.counter("epoch") == 3
