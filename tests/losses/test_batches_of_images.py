"""LSH and LMH of batches in which every image comes with all its captions."""

from __future__ import annotations

import pytest
import torch
from loss_values import close, gradient

from vsetune.losses.lmh.spec import LmhSpec
from vsetune.losses.loss_building import build_loss
from vsetune.losses.lsh.spec import LshSpec


def plain_images_loss(spec: LshSpec | LmhSpec, s: list[list[float]], owner: list[int]) -> float:
    """Every caption with its image is a pair; its image meets the captions of others, its caption the other images."""
    total = 0.0
    combine = sum if isinstance(spec, LshSpec) else max
    for caption, row in enumerate(owner):
        captions = [k for k in range(len(owner)) if owner[k] != row]
        images = [i for i in range(len(s)) if i != row]
        matched = s[row][caption]
        if captions:
            total += combine([max(0.0, spec.margin + s[row][k] - matched) for k in captions])
            total += combine([max(0.0, spec.margin + s[i][caption] - matched) for i in images])
    return total


IMAGE_SPECS = [LshSpec(), LshSpec(variant="diagonal"), LmhSpec(), LmhSpec(variant="diagonal")]


def test_images_with_several_captions_by_hand(several, several_owner, make_images) -> None:
    # pair (image, caption), its similarity; violated captions of others | violated other images
    # (0, 0) 0.70: caption 2: 0.00         | none
    # (0, 1) 0.40: 0.30 of 2, 0.10 of 4    | 0.10 of 1, 0.05 of 2
    # (1, 2) 0.60: 0.15 of 3               | 0.10 of 0
    # (2, 3) 0.45: 0.10 of 2, 0 of 1       | 0.30 of 1
    # (2, 4) 0.65: none                    | none
    inputs = make_images(several, several_owner)
    close(build_loss(LshSpec())(inputs).value, 0.40 + 0.15 + 0.15 + 0.10 + 0.10 + 0.30)
    close(build_loss(LmhSpec())(inputs).value, 0.30 + 0.10 + 0.15 + 0.10 + 0.10 + 0.30)
    away_from_kinks = build_loss(LmhSpec(margin=0.19))(inputs).value
    close(gradient(away_from_kinks, several), [[0, -2, 2, 0, 0], [0, 1, -2, 2, 0], [0, 0, 1, -2, 0]])


@pytest.mark.parametrize("spec", IMAGE_SPECS, ids=repr)
@pytest.mark.parametrize("seed", range(4))
def test_batches_of_images_equal_plain_loops(spec, seed, make_images) -> None:
    generator = torch.Generator().manual_seed(seed)
    owner = torch.cat([torch.arange(6), torch.randint(6, (9,), generator=generator)]).sort().values
    similarity = torch.rand(6, 15, generator=generator, dtype=torch.float64, requires_grad=True)
    value = build_loss(spec)(make_images(similarity, owner)).value
    close(value, plain_images_loss(spec, similarity.tolist(), owner.tolist()), 1e-9)
    loss = build_loss(spec)
    assert torch.autograd.gradcheck(lambda s: loss(make_images(s, owner)).value, similarity)
    close(gradient(value, similarity).sum(), 0.0, 1e-12)


def test_an_image_query_is_active_if_it_is_for_one_of_its_captions(several, several_owner, make_images) -> None:
    output = build_loss(LmhSpec(margin=0.09))(make_images(several, several_owner))
    assert output.selection.active_images.tolist() == [True, True, False]
    assert output.selection.active_captions.tolist() == [False, False, False, True, False]
    assert output.selection.scores.shape == output.selection.negatives.shape == (3, 5)
    assert not output.selection.negatives[0, :2].any()
    close(output.parts["active_share"], 3 / 10)
