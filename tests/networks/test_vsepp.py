from __future__ import annotations

import pytest
import torch

from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_building import build_network
from vsetune.networks.vsepp import network as order
from vsetune.networks.vsepp.network import order_similarity
from vsetune.networks.vsepp.spec import VseppSpec

SMALL = {"embedding_size": 8, "word_size": 5}


def image_vectors(network, features, counts):
    return network.encode_images(ImageInputs(features, counts)).vectors


def caption_vectors(network, tokens, lengths):
    return network.encode_captions(CaptionInputs(tokens, lengths)).vectors


def parameters(network):
    return dict(network.named_parameters())


def loop_caption(network, tokens):
    """The last state of a GRU, written gate by gate (networks of the first section: r, z, candidate)."""
    weight = parameters(network)
    state = weight["words.weight"].new_zeros(8)
    for token in tokens:
        word = weight["words.weight"][token]
        inner = weight["gru.weight_ih_l0"] @ word + weight["gru.bias_ih_l0"]
        outer = weight["gru.weight_hh_l0"] @ state + weight["gru.bias_hh_l0"]
        reset, update = (inner[:16] + outer[:16]).sigmoid().chunk(2)
        candidate = (inner[16:] + reset * outer[16:]).tanh()
        state = (1 - update) * candidate + update * state
    return state / state.norm()


def loop_image(network, features, count, image_input):
    if image_input == "global":
        vector = features[0]
    elif image_input == "mean":
        vector = sum(features[region] for region in range(count)) / count
    else:
        vector = torch.cat(list(features))
    mapped = network.image_map.weight @ vector + network.image_map.bias
    return mapped / mapped.norm()


@pytest.mark.parametrize("image_input", ["global", "mean", "flatten"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_embeddings_and_gradients_equal_plain_loops(network, inputs, image_input, dtype, tolerance):
    regions = 1 if image_input == "global" else 6
    built = network(VseppSpec(**SMALL, image_input=image_input), regions=regions).to(dtype)
    drawn = inputs(4)
    features = drawn["features"][:, :regions].to(dtype)
    counts = torch.tensor([6, 2, 5, 1]) if image_input == "mean" else torch.full((4,), regions)
    lengths = drawn["lengths"]
    weights = torch.randn(2, 4, 8, dtype=dtype)

    def gradients(images, captions):
        total = (weights[0] * images).sum() + (weights[1] * captions).sum()
        return torch.autograd.grad(total, list(built.parameters()))

    images, captions = image_vectors(built, features, counts), caption_vectors(built, drawn["tokens"], lengths)
    slow_images = torch.stack([loop_image(built, features[row], int(counts[row]), image_input) for row in range(4)])
    slow_captions = torch.stack([loop_caption(built, drawn["tokens"][row, : lengths[row]]) for row in range(4)])
    torch.testing.assert_close(images, slow_images, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(captions, slow_captions, rtol=tolerance, atol=tolerance)
    for fast, slow in zip(gradients(images, captions), gradients(slow_images, slow_captions), strict=True):
        torch.testing.assert_close(fast, slow, rtol=tolerance, atol=tolerance)


def test_parameters_start_as_published():
    torch.manual_seed(0)
    built = build_network(
        VseppSpec(embedding_size=64, word_size=30), regions=4, width=100, vocabulary_size=500
    )
    words = built.words.weight
    assert words.abs().max() <= 0.1
    assert words.abs().max() > 0.0999
    assert words[0].abs().max() > 0
    bound = (6 / (100 + 64)) ** 0.5
    assert 0.99 * bound < built.image_map.weight.abs().max() <= bound
    assert (built.image_map.bias == 0).all()
    assert built.gru.weight_hh_l0.abs().max() <= 64**-0.5


def test_absolute_makes_both_embeddings_non_negative(network, inputs):
    built, drawn = network(VseppSpec(**SMALL, absolute=True)), inputs(4)
    assert (image_vectors(built, drawn["features"], drawn["region_counts"]) >= 0).all()
    assert (caption_vectors(built, drawn["tokens"], drawn["lengths"]) >= 0).all()


def test_images_keep_their_length_without_normalisation(network, inputs):
    drawn = inputs(4)
    images = (drawn["features"], drawn["region_counts"])
    free, unit = (image_vectors(network(VseppSpec(**SMALL, normalize_images=flag)), *images) for flag in (False, True))
    torch.testing.assert_close(free / free.norm(dim=1, keepdim=True), unit)
    assert not torch.allclose(free, unit)


def plain(images: torch.Tensor, captions: torch.Tensor) -> list[list[float]]:
    def violation(image: list[float], caption: list[float]) -> float:
        return sum(max(0.0, t - v) ** 2 for v, t in zip(image, caption, strict=True)) ** 0.5

    return [[-violation(image, caption) for caption in captions.tolist()] for image in images.tolist()]


@pytest.mark.parametrize("numbers_per_block", [1, 40, 10**6])
def test_order_similarity_is_the_plain_formula_in_any_block_size(
    numbers_per_block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order, "_NUMBERS_PER_BLOCK", numbers_per_block)
    images, captions = torch.randn(7, 5, dtype=torch.float64), torch.randn(4, 5, dtype=torch.float64)
    expected = torch.tensor(plain(images, captions), dtype=torch.float64)
    torch.testing.assert_close(order_similarity(images, captions), expected, atol=1e-9, rtol=0)
    images.requires_grad_()
    captions.requires_grad_()
    assert torch.autograd.gradcheck(order_similarity, (images, captions))


def test_a_caption_below_its_image_in_every_coordinate_is_a_perfect_match_without_gradient() -> None:
    images = torch.tensor([[0.5, 0.5]], requires_grad=True)
    captions = torch.tensor([[0.2, 0.5]], requires_grad=True)
    similarity = order_similarity(images, captions)
    similarity.sum().backward()
    assert similarity.item() == 0
    assert images.grad is not None
    assert torch.equal(images.grad, torch.zeros(1, 2))


def test_vsepp_with_order_similarity_ranks_by_it() -> None:
    network = build_network(
        VseppSpec(embedding_size=6, word_size=4, absolute=True, similarity="order"), regions=1, width=3,
        vocabulary_size=9,
    )
    images = image_vectors(network, torch.randn(2, 1, 3), torch.ones(2, dtype=torch.int64))
    captions = caption_vectors(network, torch.tensor([[1, 5, 2]]), torch.tensor([3]))
    similarity = network.similarity(Encoded(images), Encoded(captions))
    torch.testing.assert_close(similarity, torch.tensor(plain(images, captions)))
