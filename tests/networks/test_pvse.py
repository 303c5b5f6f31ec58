"""PVSE: equal to loops written from the equations; what holds of its embeddings beside test_every_network.py."""

from __future__ import annotations

import pytest
import torch

from vsetune.losses.loss_base import Items, LossContext, LossInputs
from vsetune.losses.loss_building import build_loss
from vsetune.losses.pvse.spec import PvseSpec
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.parts.polysemous import ItemAttention
from vsetune.networks.pvse.network import Pvse, most_similar_pair
from vsetune.networks.pvse.spec import PvseNetworkSpec

REGIONS, WIDTH, WORDS = 6, 7, 30
SMALL = {"embedding_size": 8, "word_size": 5}
CASES = [
    PvseNetworkSpec(**SMALL, embeddings=1),
    PvseNetworkSpec(**SMALL, embeddings=2),
    PvseNetworkSpec(**SMALL, embeddings=3, end_state="legacy"),
]


def make(spec, *, seed=0):
    torch.manual_seed(seed)
    network = Pvse(spec, width=WIDTH, vocabulary_size=WORDS).double()
    with torch.no_grad():  # LayerNorm and biases away from their start
        for value in network.parameters():
            value.add_(torch.rand_like(value) * 0.3)
    return network.eval()


def draw(batch, *, seed=0):
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(1, REGIONS + 1, (batch,), generator=generator)
    features = torch.randn(batch, REGIONS, WIDTH, generator=generator, dtype=torch.float64)
    features = features * (torch.arange(REGIONS) < counts[:, None])[..., None]
    lengths = torch.randint(1, 10, (batch,), generator=generator)
    tokens = torch.randint(1, WORDS, (batch, 9), generator=generator)
    tokens = tokens.masked_fill(torch.arange(9) >= lengths[:, None], 0)
    return ImageInputs(features, counts), CaptionInputs(tokens, lengths)


def encode(network, drawn):
    return network.encode_images(drawn[0]), network.encode_captions(drawn[1])


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
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_embeddings_similarities_and_gradients_equal_plain_loops(spec, dtype, tolerance):
    network = make(spec).train().to(dtype)
    images, captions = draw(4)
    images = ImageInputs(images.features.to(dtype), images.counts)
    slow_images = loop_images(network, images)
    slow_captions = loop_captions(network, captions, spec.end_state)
    fast_images, fast_captions = encode(network, (images, captions))
    close = {"rtol": tolerance, "atol": tolerance}
    if spec.embeddings > 1:
        torch.testing.assert_close(fast_images.residuals, slow_images[1], **close)
        torch.testing.assert_close(fast_captions.residuals, slow_captions[1], **close)
    shape = fast_images.vectors.shape
    torch.testing.assert_close(fast_images.vectors, slow_images[0].view(shape), **close)
    torch.testing.assert_close(fast_captions.vectors, slow_captions[0].view(shape), **close)
    weights = torch.randn(4, 4, dtype=dtype)
    fast, slow = network.similarity(fast_images, fast_captions), loop_similarity(slow_images[0], slow_captions[0])
    torch.testing.assert_close(fast, slow, **close)
    gradients = [torch.autograd.grad((weights * scores).sum(), list(network.parameters())) for scores in (fast, slow)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, **close)


@pytest.mark.parametrize("batch", [1, 2, 5])
@pytest.mark.parametrize("embeddings", [1, 2])
def test_every_embedding_has_unit_length(embeddings, batch):
    network = make(PvseNetworkSpec(**SMALL, embeddings=embeddings))
    for encoded in encode(network, draw(batch)):
        assert encoded.vectors.shape == ((batch, 8) if embeddings == 1 else (batch, embeddings, 8))
        torch.testing.assert_close(encoded.vectors.norm(dim=-1), torch.ones(encoded.vectors.shape[:-1]).double())


def test_residuals_are_kept_in_training_and_only_with_several_embeddings():
    drawn = draw(3)
    several, one = make(CASES[1]).train(), make(CASES[0]).train()
    assert {encoded.residuals.shape for encoded in encode(several, drawn)} == {(3, 2, 8)}
    assert [encoded.residuals for encoded in encode(several.eval(), drawn)] == [None, None]
    assert [encoded.residuals for encoded in encode(one, drawn)] == [None, None]
    assert (CASES[0].kind, CASES[1].kind) == (one.kind, several.kind) == ("embedding", "several_embeddings")


def test_the_order_of_the_embeddings_of_an_item_does_not_matter():
    images, captions = torch.randn(3, 4, 5), torch.randn(2, 4, 5)
    turned = most_similar_pair(images[:, [2, 0, 3, 1]], captions[:, [1, 3, 2, 0]])
    torch.testing.assert_close(turned, most_similar_pair(images, captions))


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


def test_attention_sums_to_one_over_the_real_items():
    torch.manual_seed(0)
    attention = ItemAttention(4, 3)
    mask = torch.arange(5) < torch.tensor([5, 1, 3])[:, None]
    weights = attention.weights(torch.randn(3, 5, 4), mask)
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(3, 3))
    assert (weights[~mask] == 0).all()


def test_dropout_acts_in_training_only():
    network, drawn = make(PvseNetworkSpec(**SMALL, dropout=0.5)), draw(3)
    quiet = [encoded.vectors for encoded in encode(network, drawn)]
    assert all(map(torch.equal, quiet, [encoded.vectors for encoded in encode(network, drawn)]))
    network.train()
    torch.manual_seed(1)
    noisy = [encoded.vectors for encoded in encode(network, drawn)]
    assert not any(map(torch.allclose, quiet, noisy))
    torch.manual_seed(1)
    assert all(map(torch.equal, noisy, [encoded.vectors for encoded in encode(network, drawn)]))


def own_loss(network, loss, drawn):
    images, captions = encode(network, drawn)
    ids, similarity = torch.arange(len(images)), network.similarity(images, captions)
    items = (Items(encoded.vectors, residuals=encoded.residuals) for encoded in (images, captions))
    return loss(LossInputs(similarity, ids, ids, ids, **dict(zip(("images", "captions"), items, strict=True))))


def trained_with_its_own_loss(embeddings, *, steps):
    """(similarity in evaluation mode, what the loss gave at each step), after steps of Adam on 32 random pairs."""
    torch.manual_seed(0)
    spec = PvseNetworkSpec(embedding_size=32, word_size=16, embeddings=embeddings)
    network = Pvse(spec, width=16, vocabulary_size=50)
    loss = build_loss(PvseSpec(), LossContext(embedding_size=32, concepts=32))
    drawn = (
        ImageInputs(torch.randn(32, 4, 16), torch.full((32,), 4)),
        CaptionInputs(torch.randint(5, 50, (32, 6)), torch.full((32,), 6)),
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)
    outputs = []
    for _ in range(steps):
        outputs.append(own_loss(network, loss, drawn))
        optimizer.zero_grad()
        outputs[-1].value.backward()
        optimizer.step()
    with torch.no_grad():
        return network.eval().similarity(*encode(network, drawn)), outputs


@pytest.mark.parametrize("embeddings", [1, 2])
def test_steps_lower_pvses_own_loss(embeddings):
    _, outputs = trained_with_its_own_loss(embeddings, steps=8)
    assert outputs[-1].value < 0.8 * outputs[0].value
    # what several embeddings add acts on them: one embedding has neither term
    assert ({"diversity", "discrepancy"} <= outputs[0].parts.keys()) == (embeddings > 1)
