from __future__ import annotations

import pytest
import torch

from vsetune.errors import ConfigError, DataError
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_building import build_network
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


def test_global_input_refuses_regions():
    with pytest.raises(ConfigError) as caught:
        build_network(VseppSpec(image_input="global"), regions=36, width=4, vocabulary_size=9)
    assert str(caught.value) == (
        "network.image_input: global needs one vector per image, the data have 36 regions; use mean or flatten, or "
        "ingest global features."
    )


def test_flatten_refuses_an_image_with_fewer_regions(network, inputs):
    built, drawn = network(VseppSpec(**SMALL, image_input="flatten")), inputs(3)
    with pytest.raises(DataError, match="flatten needs 6 regions in every image, got one with 5"):
        image_vectors(built, drawn["features"], torch.tensor([6, 5, 6]))


def test_impossible_sizes_are_refused():
    with pytest.raises(ConfigError, match="width of the data is 0, need at least 1"):
        build_network(VseppSpec(), regions=1, width=0, vocabulary_size=9)
