"""What must hold for VSRN; its formulas stand in test_vsrn_loops.py."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import pad

from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.parts.packing import RealParts
from vsetune.networks.parts.region_graph import normalized_regions
from vsetune.networks.vsrn.network import Vsrn
from vsetune.networks.vsrn.spec import VsrnSpec

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
        assert torch.equal(block(regions, RealParts.of_lengths(torch.full((3,), REGIONS), REGIONS, regions)), regions)


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


def test_parameters_start_as_published():
    torch.manual_seed(0)
    spec = VsrnSpec(embedding_size=40, word_size=30, captioning_size=20)
    built = Vsrn(spec, width=100, vocabulary_size=500)
    words, parts = built.words.weight, built.generator
    assert 0.0999 < words.abs().max() <= 0.1
    assert words[0].abs().max() > 0
    bound = (6 / (100 + 40)) ** 0.5
    assert 0.99 * bound < built.region_map.weight.abs().max() <= bound
    assert (built.region_map.bias == 0).all()
    assert len(built.graph) == 4
    # Xavier-normal: variance 2 / (in + out)
    assert parts.region_map.weight.std().item() == pytest.approx((2 / (40 + 20)) ** 0.5, rel=0.06)
    assert parts.output.weight.std().item() == pytest.approx((2 / (20 + 500)) ** 0.5, rel=0.03)
    assert parts.words.weight.std().item() == pytest.approx(1, rel=0.03)
    assert parts.attention_score.bias is None


def test_only_the_flickr30k_mode_has_a_batch_norm_behind_the_gru():
    coco, flickr = (fresh(mode=mode) for mode in ("coco", "flickr30k"))
    assert set(flickr.state_dict()) - set(coco.state_dict()) == {
        f"image_norm.{name}" for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    }
    assert flickr.image_norm.weight.tolist() == [1] * 8
    assert flickr.image_norm.bias.tolist() == [0] * 8


def test_dropout_acts_on_mapped_regions_and_on_word_and_context_at_every_step():
    class Recorded(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.shapes = []

        def forward(self, values):
            self.shapes.append(tuple(values.shape))
            return values

    built, (images, captions) = make().train(), draw(images=3, captions=4)
    built.generator.dropout = Recorded()
    built.captioning_loss(built.encode_images(images), captions, torch.tensor([0, 0, 1, 2]))
    steps = int(captions.lengths.max())
    assert built.generator.dropout.shapes == [(3, REGIONS, 6)] + steps * [(4, 5 + 6)]
