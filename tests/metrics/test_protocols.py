"""Named test protocols and their folds."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from whole_scores import fold_scores, retrieval_scores

from vsetune.metrics.recalls import (
    COCO_TEST_1K,
    COCO_TEST_5K,
    FIRST_CAPTION,
    owner_scores,
)
from vsetune.metrics.score_blocks import EmbeddingScores, MatrixScores, MeanScores

RECALLS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10")


def product(rows: Tensor, columns: Tensor) -> Tensor:
    return rows @ columns.T


def test_coco_protocols_say_what_they_rank() -> None:
    assert (COCO_TEST_5K.name, COCO_TEST_5K.folds) == ("coco_test_5k", 1)
    assert (COCO_TEST_1K.name, COCO_TEST_1K.folds) == ("coco_test_1k", 5)
    assert COCO_TEST_1K.as_dict() == {
        "protocol": "coco_test_1k", "protocol_version": 1, "protocol_images": 5000, "folds": 5,
        "tie_rule": "pessimistic", "score_dtype": "float32", "ranking_version": 1,
    }
    assert COCO_TEST_1K != COCO_TEST_5K


def test_both_coco_protocols_on_5000_images() -> None:
    """One caption per image in eight dimensions, close to its image but not always closest."""
    generator = torch.Generator().manual_seed(0)
    images = torch.nn.functional.normalize(torch.randn(5000, 8, generator=generator), dim=1)
    captions = torch.nn.functional.normalize(images + 0.2 * torch.randn(5000, 8, generator=generator), dim=1)
    whole = COCO_TEST_5K.scores(EmbeddingScores(images, captions, product), torch.arange(5000))
    folds = COCO_TEST_1K.scores(EmbeddingScores(images, captions, product), torch.arange(5000))
    assert (whole.folds, folds.folds, folds.images, folds.captions) == (1, 5, 5000, 5000)
    assert whole == retrieval_scores(images, captions, torch.arange(5000), similarity=product)
    for name in RECALLS:
        assert getattr(folds, name) > getattr(whole, name)
    parts = [
        retrieval_scores(images[part], captions[part], torch.arange(1000), similarity=product)
        for part in torch.arange(5000).split(1000)
    ]
    assert folds.i2t_r1 == pytest.approx(sum(part.i2t_r1 for part in parts) / 5)
    assert folds.t2i_mean_rank == pytest.approx(sum(part.t2i_mean_rank for part in parts) / 5)


def test_a_fold_takes_the_captions_of_its_images_wherever_they_stand() -> None:
    generator = torch.Generator().manual_seed(4)
    images, captions = torch.randn(20, 6, generator=generator), torch.randn(60, 6, generator=generator)
    owner = torch.arange(60) // 3
    shuffled = torch.randperm(60, generator=generator)
    assert fold_scores(images, captions[shuffled], owner[shuffled], similarity=product, folds=4) == fold_scores(
        images, captions, owner, similarity=product, folds=4
    )


def test_the_first_caption_of_every_image_is_ranked_alone() -> None:
    # image 0 has captions 1 and 2, image 1 has 0 and 4, image 2 has 3: the first ones are 1, 0 and 3
    owner = torch.tensor([1, 0, 0, 2, 1])
    similarity = torch.tensor([
        [0.9, 0.1, 1.0, 0.0, 0.0],  # the best is 2, an own caption, but of 1, 0 and 3 it is 0, of image 1
        [0.5, 0.2, 0.0, 0.1, 0.0],  # 0, its first
        [0.1, 0.2, 0.0, 0.3, 0.9],  # the best is 4, of image 1; of 1, 0 and 3 it is 3, its own
    ])
    found = FIRST_CAPTION.scores(MatrixScores(similarity), owner)
    assert (found.images, found.captions) == (3, 3)
    assert found.i2t_r1 == pytest.approx(200 / 3)  # images 1 and 2
    assert found.t2i_r1 == pytest.approx(100 / 3)  # caption 3; 1 finds image 1 or 2, 0 finds image 0
    chosen = torch.tensor([1, 0, 3])
    assert found == owner_scores(MatrixScores(similarity[:, chosen]), torch.arange(3))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 8), st.integers(1, 4), st.integers(0, 2**31))
def test_first_captions_are_those_with_the_lowest_places(images, each, seed) -> None:
    generator = torch.Generator().manual_seed(seed)
    owner = torch.arange(images).repeat_interleave(each)[torch.randperm(images * each, generator=generator)]
    similarity = torch.randn(images, images * each, generator=generator)
    firsts = [owner.tolist().index(image) for image in range(images)]
    expected = owner_scores(MatrixScores(similarity[:, firsts]), torch.arange(images))
    assert FIRST_CAPTION.scores(MatrixScores(similarity), owner) == expected
    assert FIRST_CAPTION.as_dict()["captions"] == "first"


def test_an_ensemble_is_ranked_by_the_mean_of_its_scores() -> None:
    members = [MatrixScores(torch.tensor([[0.9, 0.1], [0.2, value]])) for value in (0.0, 0.8)]
    mean = MeanScores(members)
    torch.testing.assert_close(mean.block(slice(0, 2), slice(0, 2)), torch.tensor([[0.9, 0.1], [0.2, 0.4]]))
    assert owner_scores(members[0], torch.arange(2)).i2t_r1 == 50
    assert owner_scores(mean, torch.arange(2)).i2t_r1 == 100
