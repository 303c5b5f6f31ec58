"""LSH and LMH of batches in which every image comes with all its captions."""

from __future__ import annotations

from loss_values import close, gradient

from vsetune.losses.lmh.spec import LmhSpec
from vsetune.losses.loss_building import build_loss
from vsetune.losses.lsh.spec import LshSpec


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


def test_an_image_query_is_active_if_it_is_for_one_of_its_captions(several, several_owner, make_images) -> None:
    output = build_loss(LmhSpec(margin=0.09))(make_images(several, several_owner))
    assert output.selection.active_images.tolist() == [True, True, False]
    assert output.selection.active_captions.tolist() == [False, False, False, True, False]
    assert output.selection.scores.shape == output.selection.negatives.shape == (3, 5)
    assert not output.selection.negatives[0, :2].any()
    close(output.parts["active_share"], 3 / 10)
