"""PVSE: equal to loops written from the equations; what holds of its embeddings beside test_every_network.py."""

from __future__ import annotations

import pytest
import torch
from plain_networks import assert_same_with_gradients, draw, encode, make

from vsetune.networks.pvse.network import most_similar_pair
from vsetune.networks.pvse.spec import PvseNetworkSpec

SMALL = {"embedding_size": 8, "word_size": 5}
CASES = [
    PvseNetworkSpec(**SMALL, embeddings=1),
    PvseNetworkSpec(**SMALL, embeddings=2),
    PvseNetworkSpec(**SMALL, embeddings=3, end_state="legacy"),
]


def loop_head(head, whole, items):
    """K embeddings and residuals of one item, head by head and local item by local item."""
    scores = [head.attention.outer.weight @ torch.tanh(head.attention.inner.weight @ item) for item in items]
    embeddings, residuals = [], []
    for k in range(len(scores[0])):
        total = sum(score[k].exp() for score in scores)
        attended = sum(score[k].exp() / total * item for score, item in zip(scores, items, strict=True))
        residual = 1 / (1 + (-(head.local_map.weight @ attended + head.local_map.bias)).exp())
        added = whole + residual
        spread = ((added - added.mean()) ** 2).mean()
        normed = (added - added.mean()) / (spread + 1e-5).sqrt() * head.norm.weight + head.norm.bias
        embeddings.append(normed / normed.norm())
        residuals.append(residual)
    return torch.stack(embeddings), torch.stack(residuals)


def loop_images(network, images):
    out = []
    for features, count in zip(images.features, images.counts, strict=True):
        regions = list(features[:count])
        whole = network.image_map.weight @ (sum(regions) / len(regions)) + network.image_map.bias
        out.append(loop_head(network.image_head, whole, regions))
    return [torch.stack(part) for part in zip(*out, strict=True)]


def loop_captions(network, captions, end_state):
    out = []
    for tokens, length in zip(captions.tokens, captions.lengths, strict=True):
        words = network.words(tokens[:length])
        states, final = network.gru(words[None])
        whole = torch.cat((final[0, 0], final[1, 0])) if end_state == "final" else states[0, -1]
        out.append(loop_head(network.caption_head, whole, list(words)))
    return [torch.stack(part) for part in zip(*out, strict=True)]


def loop_similarity(images, captions):
    return torch.stack([
        torch.stack([torch.stack([p @ q for p in image for q in caption]).max() for caption in captions])
        for image in images
    ])


@pytest.mark.parametrize("spec", CASES, ids=["K=1", "K=2", "K=3 legacy"])
def test_embeddings_similarities_and_gradients_equal_plain_loops(spec):
    network, (images, captions) = make(spec).train(), draw(4)
    slow_images, slow_captions = loop_images(network, images), loop_captions(network, captions, spec.end_state)
    fast_images, fast_captions = encode(network, (images, captions))
    fast = [network.similarity(fast_images, fast_captions), fast_images.vectors, fast_captions.vectors]
    slow = [loop_similarity(slow_images[0], slow_captions[0]), slow_images[0], slow_captions[0]]
    if spec.embeddings > 1:
        fast += [fast_images.residuals, fast_captions.residuals]
        slow += [slow_images[1], slow_captions[1]]
    assert_same_with_gradients(network, fast, [other.view(one.shape) for one, other in zip(fast, slow, strict=True)])


def test_residuals_are_kept_in_training_and_only_with_several_embeddings():
    drawn = draw(3)
    several, one = make(CASES[1]).train(), make(CASES[0]).train()
    assert {encoded.residuals.shape for encoded in encode(several, drawn)} == {(3, 2, 8)}
    assert [encoded.residuals for encoded in encode(several.eval(), drawn)] == [None, None]
    assert [encoded.residuals for encoded in encode(one, drawn)] == [None, None]
    assert (CASES[0].kind, CASES[1].kind) == (one.kind, several.kind) == ("embedding", "several_embeddings")


def test_only_the_winning_pair_of_embeddings_gets_the_gradient_even_on_a_tie():
    images = torch.tensor([[[1, 0], [1, 0], [0, 1]]], dtype=torch.float64).requires_grad_()
    captions = torch.tensor([[[1, 0], [1, 0]]], dtype=torch.float64).requires_grad_()
    most_similar_pair(images, captions).sum().backward()
    assert int((images.grad != 0).any(dim=2).sum()) == 1
    assert int((captions.grad != 0).any(dim=2).sum()) == 1
    assert images.grad.sum().item() == 1


def test_the_similarity_is_that_of_the_most_similar_embeddings():
    images, captions = torch.randn(3, 2, 5).double(), torch.randn(4, 2, 5).double()
    expected = [[max(float(x @ y) for x in image for y in caption) for caption in captions] for image in images]
    torch.testing.assert_close(most_similar_pair(images, captions), torch.tensor(expected).double())
