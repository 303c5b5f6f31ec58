"""What must hold for VSRN; its formulas stand in test_vsrn_loops.py."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import pad

from vsetune.config.networks.vsrn import VsrnSpec
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.region_graph import normalized_regions
from vsetune.networks.vsrn import Vsrn

WIDTH, VOCABULARY, REGIONS = 7, 30, 5
SMALL = {"embedding_size": 8, "word_size": 5, "captioning_size": 6, "captioning_dropout": 0.0}
VARIANTS = [
    {"mode": "coco"},
    {"mode": "flickr30k"},
    {"mode": "coco", "region_normalization": "feature", "graph": "paper"},
    {"mode": "flickr30k", "graph": "paper"},
]


def fresh(*, seed=0, **options):
    torch.manual_seed(seed)
    return Vsrn(VsrnSpec(**(SMALL | options)), width=WIDTH, vocabulary_size=VOCABULARY).double()


def make(*, seed=0, **options):
    """A network in evaluation mode, moved away from where it starts (blocks start as the identity)."""
    built = fresh(seed=seed, **options)
    with torch.no_grad():
        for block in built.graph:
            last = block.norm if block.norm is not None else block.w
            last.weight.normal_(std=0.5)
            last.bias.normal_(std=0.1)
    return built.eval()


def draw(images=4, captions=4, *, counts=None, seed=0, longest=9):
    generator = torch.Generator().manual_seed(seed)
    counts = torch.tensor([5, 1, 3, 4, 2][:images] if counts is None else counts)
    features = torch.randn(images, REGIONS, WIDTH, generator=generator, dtype=torch.float64)
    features = features * (torch.arange(REGIONS) < counts[:, None])[..., None]
    lengths = torch.randint(1, longest + 1, (captions,), generator=generator)
    tokens = torch.randint(1, VOCABULARY, (captions, longest), generator=generator)
    tokens = tokens.masked_fill(torch.arange(longest) >= lengths[:, None], 0)
    return ImageInputs(features, counts), CaptionInputs(tokens, lengths)


def test_float32_is_close_to_float64():
    built = make()
    images, captions = draw()
    exact = built.similarity(built.encode_images(images), built.encode_captions(captions))
    built.float()
    rough = ImageInputs(images.features.float(), images.counts)
    found = built.similarity(built.encode_images(rough), built.encode_captions(captions))
    torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-4)


def test_longer_label_padding_and_ids_behind_the_end_do_not_change_the_generation_loss():
    built = make().train()
    images, captions = draw()
    encoded, rows = built.encode_images(images), torch.arange(4)
    loss = built.captioning_loss(encoded, captions, rows)
    longer = CaptionInputs(pad(captions.tokens, (0, 7), value=3), captions.lengths)
    torch.testing.assert_close(built.captioning_loss(encoded, longer, rows), loss, rtol=0, atol=1e-12)


def test_the_generator_does_not_look_at_padded_regions():
    built = make().train()
    images, captions = draw()
    padded = ImageInputs(pad(images.features, (0, 0, 0, 2), value=9.0), images.counts)
    losses = [built.captioning_loss(built.encode_images(one), captions, torch.arange(4)) for one in (images, padded)]
    torch.testing.assert_close(*losses, rtol=0, atol=1e-12)


def test_the_generation_loss_is_proportional_to_its_weight_and_reaches_the_regions():
    images, captions = draw()
    losses = []
    for weight in (1.0, 2.0):
        built = make(captioning_weight=weight).train()
        losses.append(built.captioning_loss(built.encode_images(images), captions, torch.arange(4)))
    torch.testing.assert_close(losses[1], 2 * losses[0])
    losses[1].backward()
    assert built.region_map.weight.grad.abs().max() > 0
    assert built.word_gru.weight_hh_l0.grad is None


def test_without_weight_there_is_no_generator_and_the_rest_starts_the_same():
    images, captions = draw()
    whole, plain = (fresh(captioning_weight=weight) for weight in (1.0, 0.0))
    assert plain.generator is None
    named = whole.state_dict()
    assert all(torch.equal(value, named[name]) for name, value in plain.state_dict().items())
    assert plain.captioning_loss(plain.encode_images(images), captions, torch.arange(4)) == 0


def test_evaluation_keeps_no_regions_and_has_no_generation_loss():
    built = make()
    images, captions = draw()
    with pytest.raises(TypeError, match="needs images encoded in training mode"):
        built.captioning_loss(built.encode_images(images), captions, torch.arange(4))


def test_every_parameter_is_registered_once():
    parameters = list(make().parameters())
    assert len({id(value) for value in parameters}) == len(parameters)
    names = {name for name, _ in make().named_parameters(remove_duplicate=False)}
    assert len(names) == len(parameters)


@pytest.mark.parametrize("graph", ["released", "paper"])
@pytest.mark.parametrize("training", [False, True])
def test_a_new_graph_block_returns_its_input(graph, training):
    built = fresh(graph=graph).train(training)
    regions = torch.randn(3, REGIONS, 8, dtype=torch.float64)
    for block in built.graph:
        assert torch.equal(block(regions, torch.ones(3, REGIONS, dtype=torch.bool)), regions)


def test_the_graph_follows_the_order_of_regions_but_the_embedding_depends_on_it():
    built = make()
    images, _ = draw(counts=[5, 5, 5, 5])
    order = torch.tensor([3, 0, 4, 1, 2])
    turned = ImageInputs(images.features[:, order], images.counts)
    torch.testing.assert_close(built.reasoned(turned), built.reasoned(images)[:, order], rtol=0, atol=1e-12)
    assert not torch.allclose(built.encode_images(turned).vectors, built.encode_images(images).vectors)


def test_channels_have_unit_length_across_regions_and_regions_with_the_option():
    images, _ = draw()
    channels = make().reasoned(images)
    torch.testing.assert_close(channels.norm(dim=1), torch.ones(4, 8, dtype=torch.float64))
    assert (channels[1, 1:] == 0).all()
    regions = make(region_normalization="feature").reasoned(images)
    expected = (torch.arange(REGIONS) < images.counts[:, None]).double()
    torch.testing.assert_close(regions.norm(dim=2), expected)


def test_normalising_by_hand():
    # channel 0 is (3, 4) over two regions, channel 1 is (0, 2); region 0 is (3, 0), region 1 is (4, 2)
    regions, length = torch.tensor([[[3.0, 0.0], [4.0, 2.0]]]), 20**0.5
    channels, features = (normalized_regions(regions, over) for over in ("channel_over_regions", "feature"))
    torch.testing.assert_close(channels, torch.tensor([[[0.6, 0.0], [0.8, 1.0]]]))
    torch.testing.assert_close(features, torch.tensor([[[1.0, 0.0], [4 / length, 2 / length]]]))


@pytest.mark.parametrize("options", VARIANTS)
def test_padding_changes_nothing(options):
    built = make(**options)
    images, captions = draw()
    junk = pad(images.features, (0, 0, 0, 7)).clone()
    for row, count in enumerate(images.counts.tolist()):
        junk[row, count:] = 1e3
    plain = built.encode_images(images).vectors
    torch.testing.assert_close(built.encode_images(ImageInputs(junk, images.counts)).vectors, plain, rtol=0, atol=1e-12)
    longer = CaptionInputs(pad(captions.tokens, (0, 7), value=3), captions.lengths)
    torch.testing.assert_close(
        built.encode_captions(longer).vectors, built.encode_captions(captions).vectors, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("options", VARIANTS)
def test_an_embedding_depends_neither_on_its_batch_nor_on_its_place_in_it(options):
    built = make(**options)
    images, captions = draw()
    whole = built.encode_images(images).vectors, built.encode_captions(captions).vectors
    order = torch.tensor([3, 0, 1, 2])
    turned = (
        built.encode_images(ImageInputs(images.features[order], images.counts[order])).vectors,
        built.encode_captions(CaptionInputs(captions.tokens[order], captions.lengths[order])).vectors,
    )
    for one, other in zip(turned, whole, strict=True):
        torch.testing.assert_close(one, other[order], rtol=0, atol=1e-12)
        torch.testing.assert_close(other.norm(dim=1), torch.ones(4, dtype=torch.float64))
    for row in range(4):
        alone = built.encode_images(ImageInputs(images.features[row : row + 1], images.counts[row : row + 1])).vectors
        torch.testing.assert_close(alone[0], whole[0][row], rtol=0, atol=1e-12)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("counts", [[1], [0], [5]])
def test_one_image_with_one_or_no_region_and_one_word_gives_finite_values_and_gradients(training, counts):
    for options in VARIANTS:
        built = make(**options).train(training)
        images, captions = draw(images=1, captions=1, counts=counts)
        captions = CaptionInputs(torch.tensor([[1, 7, 2]]), torch.tensor([3]))
        encoded = built.encode_images(images)
        loss = built.similarity(encoded, built.encode_captions(captions)).sum()
        if training:
            loss = loss + built.captioning_loss(encoded, captions, torch.tensor([0]))
        loss.backward()
        assert torch.isfinite(loss)
        assert all(torch.isfinite(value.grad).all() for value in built.parameters() if value.grad is not None)


@pytest.mark.parametrize("training", [False, True])
def test_an_image_of_zeros_gives_finite_values_and_moderate_gradients(training):
    for options in VARIANTS:
        built = make(**options).train(training)
        images, _ = draw(counts=[5, 5, 5, 5])
        images.features[1] = 0
        embedded = built.encode_images(images).vectors
        (embedded * torch.randn_like(embedded)).sum().backward()
        found = [value.grad for value in built.parameters() if value.grad is not None]
        assert torch.isfinite(embedded).all()
        assert max(gradient.abs().max() for gradient in found) < 1e3


def test_scores_are_rectangular_and_identical_after_saving_and_loading(tmp_path):
    built = make().train()
    images, captions = draw(images=3, captions=5)
    built.encode_images(images)  # moves the running statistics
    built.eval()
    torch.save(built.state_dict(), tmp_path / "network.pt")
    restored = make(seed=9)
    restored.load_state_dict(torch.load(tmp_path / "network.pt", weights_only=True))
    scores = [one.similarity(one.encode_images(images), one.encode_captions(captions)) for one in (built, restored)]
    assert scores[0].shape == (3, 5)
    assert torch.equal(*scores)


def test_everything_is_float32_under_autocast():
    built = make().float().train()
    images, captions = draw()
    images = ImageInputs(images.features.float(), images.counts)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        encoded = built.encode_images(images)
        similarity = built.similarity(encoded, built.encode_captions(captions))
        loss = similarity.sum() + built.captioning_loss(encoded, captions, torch.arange(4))
    loss.backward()
    assert {encoded.vectors.dtype, similarity.dtype, loss.dtype} == {torch.float32}


def test_dropout_only_acts_in_training_and_follows_the_global_seed():
    built = make(captioning_dropout=0.5).train()
    images, captions = draw()
    encoded = built.encode_images(images)

    def loss(seed):
        torch.manual_seed(seed)
        return built.captioning_loss(encoded, captions, torch.arange(4))

    assert torch.equal(loss(1), loss(1))
    assert not torch.equal(loss(1), loss(2))
    built.generator.eval()
    assert torch.equal(loss(1), loss(2))


@pytest.mark.parametrize("mode", ["coco", "flickr30k"])
def test_thirty_two_random_pairs_are_learned_by_heart(mode):
    torch.manual_seed(0)
    spec = VsrnSpec(embedding_size=32, word_size=16, captioning_size=16, mode=mode)
    built = Vsrn(spec, width=16, vocabulary_size=50)
    images = ImageInputs(torch.randn(32, 4, 16), torch.full((32,), 4))
    captions = CaptionInputs(torch.randint(5, 50, (32, 6)), torch.full((32,), 6))
    optimizer = torch.optim.Adam(built.parameters(), lr=5e-3)
    for step in range(200):
        encoded = built.encode_images(images)
        similarity = built.similarity(encoded, built.encode_captions(captions))
        loss = hinges(similarity, hardest=step > 30) + built.captioning_loss(encoded, captions, torch.arange(32))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    built.eval()
    with torch.no_grad():
        similarity = built.similarity(built.encode_images(images), built.encode_captions(captions))
    assert (similarity.argmax(dim=1) == torch.arange(32)).all()
    assert (similarity.argmax(dim=0) == torch.arange(32)).all()


def hinges(similarity, *, hardest):
    matched, total = similarity.diagonal(), 0
    for dim, other in ((1, matched[:, None]), (0, matched)):
        costs = (0.2 + similarity - other).relu().masked_fill(torch.eye(len(similarity), dtype=torch.bool), 0.0)
        total = total + (costs.amax(dim=dim).sum() if hardest else costs.sum())
    return total
