"""GSMN's matches of words and regions, block by block."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import normalize

from vsetune.networks.gsmn.matching import attentions, matches, prepared

REGIONS, WORDS, BLOCKS, SCALE = 3, 4, 2, 5.0


def draw(lengths, parts, *, seed):
    generator = torch.Generator().manual_seed(seed)
    vectors = normalize(torch.randn(len(lengths), parts, 6, generator=generator, dtype=torch.float64), dim=-1)
    lengths = torch.tensor(lengths)
    return vectors * (torch.arange(parts) < lengths[:, None])[..., None], lengths


def both(image_counts=(3, 1), caption_lengths=(4, 1, 2)):
    return draw(image_counts, REGIONS, seed=0), draw(caption_lengths, WORDS, seed=1)


def found(regions, counts, words, lengths):
    return matches(prepared(regions, counts, BLOCKS), [prepared(words, lengths, BLOCKS)], SCALE)[0]


def test_matches_equal_cosines_with_the_attended_vectors():
    (regions, counts), (words, lengths) = both()
    of_regions, of_words = found(regions, counts, words, lengths)
    raw = torch.einsum("nrd,cld->lcrn", regions, words)
    is_word, is_region = torch.arange(WORDS)[:, None] < lengths, torch.arange(REGIONS)[:, None] < counts
    over_words, over_regions = attentions(raw, is_word, is_region, SCALE)
    for image, regions_of_image in enumerate(regions):
        for caption, words_of_caption in enumerate(words):
            to_words, to_regions = over_words[:, caption, :, image].T, over_regions[:, caption, :, image]
            for own, others, weights, cosines, real in (
                (regions_of_image, words_of_caption, to_words, of_regions[:, caption, :, image], counts[image]),
                (words_of_caption, regions_of_image, to_regions, of_words[:, :, caption, image], lengths[caption]),
            ):
                attended = (weights @ others).reshape(len(own), BLOCKS, -1)
                expected = torch.cosine_similarity(own.reshape(attended.shape), attended, dim=2)
                torch.testing.assert_close(cosines.T[:real], expected[:real], rtol=1e-9, atol=1e-12)


def test_groups_of_captions_share_nothing():
    (regions, counts), (words, lengths) = both()
    images = prepared(regions.requires_grad_(), counts, BLOCKS)
    groups = [prepared(words[rows, :most], lengths[rows], BLOCKS) for rows, most in (([0], 4), ([2, 1], 2))]
    together, apart = matches(images, groups, SCALE), [matches(images, [group], SCALE)[0] for group in groups]
    gradients = [
        torch.autograd.grad(sum(tensor.sin().sum() for pair in found for tensor in pair), regions, retain_graph=True)
        for found in (together, apart)
    ]
    torch.testing.assert_close(together, apart, rtol=0, atol=1e-12)
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_second_backward_pass_gives_the_same_gradients(is_kept):
    (regions, counts), (words, lengths) = both()
    images, captions = prepared(regions.requires_grad_(), counts, BLOCKS), prepared(words, lengths, BLOCKS)
    total = sum(tensor.sin().sum() for tensor in matches(images, [captions], SCALE, is_kept=is_kept)[0])
    first, second = (torch.autograd.grad(total, regions, retain_graph=True)[0] for _ in range(2))
    torch.testing.assert_close(second, first, rtol=1e-12, atol=1e-14)


def test_matches_are_cosines_and_nothing_matches_a_zero_vector():
    (regions, counts), (words, lengths) = both()
    regions[0, 1] = 0
    of_regions, of_words = found(regions, counts, words, lengths)
    assert max(of_regions.abs().max(), of_words.abs().max()) <= 1 + 1e-12
    assert (of_regions[:, :, 1, 0] == 0).all()
