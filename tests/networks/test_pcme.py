"""PCME: equal to loops written from the equations; what holds of its Gaussians beside test_every_network.py."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import pad

from vsetune.losses.loss_base import Items, LossContext, LossInputs
from vsetune.losses.loss_building import build_loss
from vsetune.losses.pcme.spec import PcmeSpec
from vsetune.networks.encoded import Encoded, joined
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.pcme.network import Pcme
from vsetune.networks.pcme.spec import PcmeNetworkSpec

REGIONS, WIDTH, WORDS = 6, 7, 30
SMALL = {"embedding_size": 8, "word_size": 5, "samples": 3}
SIMILARITIES = ["matmul", "match_probability", "mean"]


def make(spec, *, seed=0):
    torch.manual_seed(seed)
    network = Pcme(spec, width=WIDTH, vocabulary_size=WORDS).double()
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


def loop_attended(attention, items):
    scores = [(attention.outer.weight @ torch.tanh(attention.inner.weight @ item))[0].exp() for item in items]
    return sum(score / sum(scores) * item for score, item in zip(scores, items, strict=True))


def loop_mean(head, whole, items):
    residual = torch.sigmoid(head.local_map.weight @ loop_attended(head.attention, items) + head.local_map.bias)
    added = whole + residual
    spread = ((added - added.mean()) ** 2).mean()
    normed = (added - added.mean()) / (spread + 1e-5).sqrt() * head.norm.weight + head.norm.bias
    return normed / normed.norm()


def loop_log_scale(spread, whole, items):
    return spread.local_map.weight @ loop_attended(spread.attention, items) + spread.local_map.bias + whole


def loop_image(network, features):
    regions = list(features)
    pooled = sum(regions) / len(regions)
    mean = loop_mean(network.image_head, network.image_map.weight @ pooled + network.image_map.bias, regions)
    whole = network.image_spread_map.weight @ pooled + network.image_spread_map.bias
    return mean, loop_log_scale(network.image_spread, whole, regions)


def loop_caption(network, tokens, end_state):
    words, ends = network.words(tokens), []
    for gru in (network.gru, network.spread_gru):
        states, final = gru(words[None])
        ends.append(states[0, -1] if end_state == "legacy" else torch.cat((final[0, 0], final[1, 0])))
    mean = loop_mean(network.caption_head, ends[0], list(words))
    return mean, loop_log_scale(network.caption_spread, ends[1], list(words))


def loop_encoded(network, images, captions, end_state):
    found = [loop_image(network, row[:count]) for row, count in zip(images.features, images.counts, strict=True)]
    texts = [
        loop_caption(network, row[:length], end_state)
        for row, length in zip(captions.tokens, captions.lengths, strict=True)
    ]
    return [
        Encoded(torch.stack([mean for mean, _ in some]), log_scales=torch.stack([scale for _, scale in some]))
        for some in (found, texts)
    ]


def loop_score(network, image, caption, similarity):
    """One entry from the samples of one image (mean, log scale) and one caption."""
    if similarity == "mean":
        return image[0] @ caption[0]
    drawn = [image[0] + image[1].exp() * noise for noise in network.image_noise]
    others = [caption[0] + caption[1].exp() * noise for noise in network.caption_noise]
    if similarity == "matmul":
        return sum(x @ y for x in drawn for y in others)
    a, b = network.match_scale, network.match_shift
    logits = [b - a * (((x - y) ** 2).sum() + 1e-6).sqrt() for x in drawn for y in others]
    match = sum(logit.exp() / (logit.exp() + (-logit).exp()) for logit in logits) / len(logits)
    mismatch = sum((-logit).exp() / (logit.exp() + (-logit).exp()) for logit in logits) / len(logits)
    return match.log() - mismatch.log()


def loop_similarity(network, images, captions, similarity):
    return torch.stack([
        torch.stack([
            loop_score(network, image, caption, similarity)
            for caption in zip(captions.vectors, captions.log_scales, strict=True)
        ])
        for image in zip(images.vectors, images.log_scales, strict=True)
    ])


@pytest.mark.parametrize("end_state", ["legacy", "final"])
@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_gaussians_similarities_and_gradients_equal_plain_loops(end_state, similarity, dtype, tolerance):
    spec = PcmeNetworkSpec(**SMALL, end_state=end_state, similarity=similarity, match_scale=1.5, match_shift=2.0)
    network = make(spec).to(dtype)
    images, captions = draw(4)
    images = ImageInputs(images.features.to(dtype), images.counts)
    fast, slow = encode(network, (images, captions)), loop_encoded(network, images, captions, end_state)
    for one, other in zip(fast, slow, strict=True):
        torch.testing.assert_close(one.vectors, other.vectors, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(one.log_scales, other.log_scales, rtol=tolerance, atol=tolerance)
    scores = network.similarity(*fast), loop_similarity(network, *slow, similarity)
    torch.testing.assert_close(*scores, rtol=tolerance, atol=tolerance)
    weights = torch.randn(4, 4, dtype=dtype)
    gradients = [
        torch.autograd.grad(
            (weights * score).sum() + sum(item.log_scales.sin().sum() for item in items), list(network.parameters())
        )
        for score, items in zip(scores, (fast, slow), strict=True)
    ]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def test_means_have_unit_length_and_spreads_are_free():
    network = make(PcmeNetworkSpec(**SMALL))
    for batch in (1, 2, 5):
        for encoded in encode(network, draw(batch)):
            assert encoded.vectors.shape == encoded.log_scales.shape == (batch, 8)
            torch.testing.assert_close(encoded.vectors.norm(dim=1), torch.ones(batch).double())
            assert not torch.allclose(encoded.log_scales.norm(dim=1), torch.ones(batch).double())


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_padding_and_the_order_of_regions_change_nothing(similarity):
    network, (images, captions) = make(PcmeNetworkSpec(**SMALL, similarity=similarity)), draw(5)
    junk = pad(images.features, (0, 0, 0, 7), value=1e3)
    for row, count in enumerate(images.counts.tolist()):
        junk[row, count:] = 1e3
        junk[row, :count] = junk[row, torch.randperm(count)]
    longer = pad(captions.tokens, (0, 7)).masked_fill(pad(captions.tokens, (0, 7)) == 0, 3)
    other = ImageInputs(junk, images.counts), CaptionInputs(longer, captions.lengths)
    plain, padded = encode(network, (images, captions)), encode(network, other)
    for one, same in zip(plain, padded, strict=True):
        torch.testing.assert_close(same.log_scales, one.log_scales, rtol=0, atol=1e-12)
    torch.testing.assert_close(network.similarity(*padded), network.similarity(*plain), rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_a_score_depends_neither_on_the_batch_nor_on_the_place_in_it(similarity):
    network, (images, captions) = make(PcmeNetworkSpec(**SMALL, similarity=similarity)), draw(5)
    whole = network.similarity(*encode(network, (images, captions)))
    rows, columns = torch.tensor([3, 0]), torch.tensor([4, 1, 2])
    part = (
        ImageInputs(images.features[rows], images.counts[rows]),
        CaptionInputs(captions.tokens[columns], captions.lengths[columns]),
    )
    alone = network.similarity(*encode(network, part))
    torch.testing.assert_close(alone, whole[rows][:, columns], rtol=1e-12, atol=1e-10)
    found, texts = encode(network, (images, captions))
    again = joined([texts[:2], texts[2:]])
    torch.testing.assert_close(network.similarity(found, again), whole, rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("training", [False, True])
def test_empty_images_and_one_word_give_finite_values_and_gradients(similarity, training):
    network = make(PcmeNetworkSpec(**SMALL, similarity=similarity)).train(training)
    images = ImageInputs(torch.zeros(1, REGIONS, WIDTH, dtype=torch.float64), torch.tensor([0]))
    captions = CaptionInputs(torch.tensor([[1, 7, 2]]), torch.tensor([3]))
    scores = network.similarity(*encode(network, (images, captions)))
    scores.sum().backward()
    assert scores.shape == (1, 1)
    assert torch.isfinite(scores).all()
    assert all(torch.isfinite(value.grad).all() for value in network.parameters() if value.grad is not None)


def test_scores_are_identical_after_saving_and_loading(tmp_path):
    spec = PcmeNetworkSpec(**SMALL, similarity="match_probability")
    network, drawn = make(spec), draw(4)
    network.take_loss_parameters({"match_scale": torch.tensor(7.0), "match_shift": torch.tensor(3.0)})
    torch.save(network.state_dict(), tmp_path / "network.pt")
    restored = make(spec, seed=5)
    restored.load_state_dict(torch.load(tmp_path / "network.pt", weights_only=True))
    assert torch.equal(*(one.similarity(*encode(one, drawn)) for one in (network, restored)))


def test_gaussians_are_float32_under_autocast():
    network, (images, captions) = make(PcmeNetworkSpec(**SMALL)).float(), draw(3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        encoded = encode(network, (ImageInputs(images.features.float(), images.counts), captions))
        scores = network.similarity(*encoded)
    kinds = {scores.dtype, *(item.vectors.dtype for item in encoded), *(item.log_scales.dtype for item in encoded)}
    assert kinds == {torch.float32}
    assert torch.equal(scores, network.similarity(*encoded))


def random_pairs():
    images = ImageInputs(torch.randn(32, 4, 16), torch.full((32,), 4))
    return images, CaptionInputs(torch.randint(5, 50, (32, 6)), torch.full((32,), 6))


def assert_learned(similarity):
    assert (similarity.argmax(dim=1) == torch.arange(32)).all()
    assert (similarity.argmax(dim=0) == torch.arange(32)).all()


def trained_with_its_own_loss(similarity, *, steps):
    """(similarity in evaluation mode, what the loss gave at each step), after steps of Adam on 32 random pairs."""
    torch.manual_seed(0)
    spec = PcmeNetworkSpec(embedding_size=32, word_size=16, similarity=similarity)
    network, drawn, values = Pcme(spec, width=16, vocabulary_size=50), random_pairs(), []
    loss = build_loss(PcmeSpec(scale=5, shift=5), LossContext(embedding_size=32, concepts=32))
    optimizer = torch.optim.Adam([*network.parameters(), *loss.parameters()], lr=5e-3)
    ids = torch.arange(32)
    for _ in range(steps):
        found, texts = encode(network, drawn)
        items = {
            "images": Items(found.vectors, log_scales=found.log_scales),
            "captions": Items(texts.vectors, log_scales=texts.log_scales),
        }
        similarity_matrix = network.similarity(found, texts)
        output = loss(LossInputs(similarity_matrix, ids, ids, ids, **items))
        optimizer.zero_grad()
        output.value.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 2.0)
        optimizer.step()
        values.append(output.value.item())
    network.eval().take_loss_parameters({"match_scale": loss.scale, "match_shift": loss.shift})
    return network.similarity(*encode(network, drawn)), values


def test_steps_lower_pcmes_own_loss():
    _, values = trained_with_its_own_loss("match_probability", steps=16)
    assert values[-1] < 0.8 * values[0]


@pytest.mark.slow
@pytest.mark.parametrize("similarity", ["matmul", "match_probability"])
def test_thirty_two_random_pairs_are_learned_by_heart_with_pcmes_own_loss(similarity):
    learnt, _ = trained_with_its_own_loss(similarity, steps=200)
    assert_learned(learnt)
