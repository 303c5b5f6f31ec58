"""Captions of an image keep their order, also where a processor's fast sort would not keep it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from vsetune.metrics.positives import Positives
from vsetune.metrics.semantic_ranking import CaptionSemantics

IMAGES, CAPTIONS = 3, 900


@pytest.fixture
def many_owner() -> Tensor:
    """(CAPTIONS,) owners in random order, hundreds of captions per image: enough for vectorised sorting."""
    return torch.randint(0, IMAGES, (CAPTIONS,), generator=torch.Generator().manual_seed(0))


def test_pairs_come_by_image_and_then_by_caption(many_owner: Tensor) -> None:
    positives = Positives.of_owner(many_owner, images=IMAGES, captions=CAPTIONS)
    pairs = list(zip(positives.image.tolist(), positives.caption.tolist(), strict=True))
    assert pairs == sorted((image, caption) for caption, image in enumerate(many_owner.tolist()))


def test_the_first_caption_of_an_image_is_the_first_in_the_data(many_owner: Tensor) -> None:
    vectors = torch.randn(CAPTIONS, 4, generator=torch.Generator().manual_seed(1))
    semantics = CaptionSemantics(vectors, many_owner, images=IMAGES, image_score="first")
    block = semantics.block(slice(0, IMAGES), slice(0, CAPTIONS))
    for image in range(IMAGES):
        first = many_owner.tolist().index(image)
        expected = torch.cosine_similarity(vectors[first].double(), vectors.double(), dim=1)
        assert torch.allclose(block[image].double(), expected, rtol=0, atol=1e-6)
