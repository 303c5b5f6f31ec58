"""What holds for every network."""

from __future__ import annotations

import pytest
import torch

from vsetune.config.networks import VseInfinitySpec, VseppSpec
from vsetune.networks import CaptionInputs, Encoded, ImageInputs, build_network
from vsetune.networks.network import unit_length


def image_vectors(network, features, counts):
    return network.encode_images(ImageInputs(features, counts)).vectors


def caption_vectors(network, tokens, lengths):
    return network.encode_captions(CaptionInputs(tokens, lengths)).vectors


def embed(network, drawn):
    return (
        image_vectors(network, drawn["features"], drawn["region_counts"]),
        caption_vectors(network, drawn["tokens"], drawn["lengths"]),
    )


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_both_towers_give_unit_vectors_of_the_joint_size(any_network, inputs, batch):
    for embedded in embed(any_network, inputs(batch)):
        assert embedded.shape == (batch, any_network.embedding_size)
        torch.testing.assert_close(embedded.norm(dim=1), torch.ones(batch, dtype=torch.float64))


def test_similarity_has_images_in_rows_and_captions_in_columns(any_network, inputs):
    images, captions = embed(any_network, inputs(5))
    similarity = any_network.similarity(Encoded(images[:2]), Encoded(captions))
    assert similarity.shape == (2, 5)
    torch.testing.assert_close(similarity[1, 3], images[1] @ captions[3])


@pytest.mark.parametrize("training", [False, True])
def test_a_batch_of_one_and_a_one_word_caption_give_finite_values_and_gradients(any_network, inputs, training):
    any_network.train(training)
    drawn = inputs(1) | {"tokens": torch.tensor([[1, 7, 2]]), "lengths": torch.tensor([3])}
    images, captions = embed(any_network, drawn)
    any_network.similarity(Encoded(images), Encoded(captions)).sum().backward()
    assert torch.isfinite(images).all()
    assert torch.isfinite(captions).all()
    assert all(torch.isfinite(value.grad).all() for value in any_network.parameters() if value.grad is not None)


@pytest.mark.parametrize("training", [False, True])
def test_an_image_of_zeros_gives_finite_values_and_gradients(any_network, inputs, training):
    any_network.train(training)
    drawn = inputs(3)
    drawn["features"][1] = 0
    embedded = image_vectors(any_network, drawn["features"], drawn["region_counts"])
    (embedded * torch.randn_like(embedded)).sum().backward()
    assert torch.isfinite(embedded).all()
    gradients = [value.grad for value in any_network.parameters() if value.grad is not None]
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
    assert max(gradient.abs().max() for gradient in gradients) < 1e3


def test_more_padding_behind_captions_changes_nothing(any_network, inputs):
    drawn = inputs(5)
    longer = torch.nn.functional.pad(drawn["tokens"], (0, 7))
    torch.testing.assert_close(
        caption_vectors(any_network, longer, drawn["lengths"]),
        caption_vectors(any_network, drawn["tokens"], drawn["lengths"]), rtol=0, atol=1e-12,
    )


def test_ids_behind_the_length_are_not_looked_at(any_network, inputs):
    drawn = inputs(5)
    junk = drawn["tokens"].masked_fill(drawn["tokens"] == 0, 3)
    assert not torch.equal(junk, drawn["tokens"])
    torch.testing.assert_close(
        caption_vectors(any_network, junk, drawn["lengths"]),
        caption_vectors(any_network, drawn["tokens"], drawn["lengths"]), rtol=0, atol=1e-12,
    )


def test_permuting_the_batch_permutes_the_rows(any_network, inputs):
    drawn = inputs(5)
    order = torch.tensor([3, 0, 4, 1, 2])
    permuted = {name: value[order] for name, value in drawn.items()}
    for whole, again in zip(embed(any_network, drawn), embed(any_network, permuted), strict=True):
        torch.testing.assert_close(again, whole[order], rtol=0, atol=1e-12)


def test_an_embedding_does_not_depend_on_its_batch(any_network, inputs):
    drawn = inputs(5)
    whole = embed(any_network, drawn)
    for row in range(5):
        alone = embed(any_network, {name: value[row : row + 1] for name, value in drawn.items()})
        for one, batch in zip(alone, whole, strict=True):
            torch.testing.assert_close(one[0], batch[row], rtol=0, atol=1e-12)


@pytest.mark.parametrize("spec", [
    VseppSpec(embedding_size=8, word_size=5),
    VseInfinitySpec(embedding_size=8, word_size=5, pooling_size=4),
    VseInfinitySpec(embedding_size=8, word_size=5, pooling_size=4, image_mlp=False),
])
def test_padded_regions_and_the_order_of_regions_change_nothing(network, inputs, spec):
    built, drawn = network(spec), inputs(4)
    counts = torch.tensor([6, 1, 3, 5])
    junk = torch.nn.functional.pad(drawn["features"], (0, 0, 0, 2), value=9.0)
    plain = image_vectors(built, drawn["features"], counts)
    for row, count in enumerate(counts.tolist()):
        junk[row, count:] = 1e3
        junk[row, :count] = junk[row, torch.randperm(count)]
    torch.testing.assert_close(image_vectors(built, junk, counts), plain, rtol=0, atol=1e-12)


def test_the_order_of_regions_matters_when_they_are_concatenated(network, inputs):
    built, drawn = network(VseppSpec(embedding_size=8, word_size=5, image_input="flatten")), inputs(4)
    turned = image_vectors(built, drawn["features"].flip(1), drawn["region_counts"])
    assert not torch.allclose(turned, image_vectors(built, drawn["features"], drawn["region_counts"]))


def test_the_order_of_words_matters(any_network):
    tokens = torch.tensor([[1, 7, 8, 9, 2], [1, 9, 8, 7, 2]])
    forward, backward = caption_vectors(any_network, tokens, torch.tensor([5, 5]))
    assert not torch.allclose(forward, backward)


def test_an_equal_seed_gives_equal_parameters(network):
    spec = VseInfinitySpec(embedding_size=8, word_size=5, pooling_size=4)
    one, same, other = (network(spec, seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["words.weight"], other["words.weight"])


def test_scores_are_identical_after_saving_and_loading(any_network, network, inputs, tmp_path):
    drawn = inputs(5)
    any_network.train()
    embed(any_network, drawn)  # moves the running statistics where there are any
    any_network.eval()
    torch.save(any_network.state_dict(), tmp_path / "network.pt")
    restored = network(any_network._spec, seed=9)
    restored.load_state_dict(torch.load(tmp_path / "network.pt", weights_only=True))
    scores = (each.similarity(*map(Encoded, embed(each, drawn))) for each in (any_network, restored))
    assert torch.equal(*scores)


def test_embeddings_are_float32_under_autocast(any_network, inputs):
    drawn = inputs(4)
    drawn["features"] = drawn["features"].float()
    any_network.float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        images, captions = embed(any_network, drawn)
        similarity = any_network.similarity(Encoded(images), Encoded(captions))
    assert {images.dtype, captions.dtype, similarity.dtype} == {torch.float32}
    assert torch.equal(similarity, images @ captions.T)


@pytest.mark.parametrize("name", ["vsepp", "vse_infinity"])
def test_thirty_two_random_pairs_are_learned_by_heart(name):
    torch.manual_seed(0)
    spec = (
        VseppSpec(embedding_size=32, word_size=16) if name == "vsepp"
        else VseInfinitySpec(embedding_size=32, word_size=16, pooling_size=8, augment=False)
    )
    built = build_network(spec, regions=4, width=16, vocabulary_size=50)
    features, tokens = torch.randn(32, 4, 16), torch.randint(5, 50, (32, 6))
    images = ImageInputs(features, torch.full((32,), 4))
    captions = CaptionInputs(tokens, torch.full((32,), 6))
    optimizer = torch.optim.Adam(built.parameters(), lr=5e-3)
    for step in range(200):
        similarity = built.similarity(built.encode_images(images), built.encode_captions(captions))
        matched = similarity.diagonal()
        loss = hinge(similarity, matched[:, None], dim=1, hardest=step > 30)
        loss = loss + hinge(similarity, matched, dim=0, hardest=step > 30)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    built.eval()
    with torch.no_grad():
        similarity = built.similarity(built.encode_images(images), built.encode_captions(captions))
    assert (similarity.argmax(dim=1) == torch.arange(32)).all()
    assert (similarity.argmax(dim=0) == torch.arange(32)).all()


def hinge(similarity, matched, *, dim, hardest):
    costs = (0.2 + similarity - matched).relu().masked_fill(torch.eye(len(similarity), dtype=torch.bool), 0.0)
    return costs.amax(dim=dim).sum() if hardest else costs.sum()


def test_a_zero_vector_stays_zero_and_gets_no_gradient():
    vectors = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    unit = unit_length(vectors)
    torch.testing.assert_close(unit, torch.tensor([[0.0, 0.0], [0.6, 0.8]]))
    unit.sum().backward()
    assert torch.equal(vectors.grad[0], torch.zeros(2))
    # d/dx of x/|x| summed over both coordinates: (1 - (0.6 + 0.8) * x_hat) / 5
    torch.testing.assert_close(vectors.grad[1], torch.tensor([(1 - 1.4 * 0.6) / 5, (1 - 1.4 * 0.8) / 5]))
