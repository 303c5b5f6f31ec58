"""Image queries and caption queries have margins of their own."""

from __future__ import annotations

import torch

from vsetune.losses.adaptive_margin.loss import hinge_gaps
from vsetune.losses.parts.pairing import QueryTerms


def test_the_first_margin_is_that_of_image_queries_and_the_second_that_of_caption_queries() -> None:
    gaps = QueryTerms(torch.tensor([0.0, -0.25, -1.0]), torch.tensor([0.0, -0.25, -1.0]))
    hinges = hinge_gaps(gaps, margins=torch.tensor([0.5, 0.125]))
    assert hinges.images.tolist() == [0.5, 0.25, 0.0]
    assert hinges.captions.tolist() == [0.125, 0.0, 0.0]
