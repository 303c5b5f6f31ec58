"""VSRN and its caption generator against plain loops over images, regions, words and gates."""

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
            # regions grow along the paper's graph, which has no BatchNorm: with more, rounding grows with them
            last.weight.normal_(std=0.5 if block.norm is not None else 0.2)
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


def linear(layer, vector):
    return layer.weight @ vector + layer.bias


def gru_step(weights, vector, state):
    """r, z, candidate of section 1.2, for modules of one or of many steps."""
    inner, outer = (
        getattr(weights, f"weight_{name}") @ value + getattr(weights, f"bias_{name}")
        for name, value in (("ih", vector), ("hh", state))
    )
    reset_in, update_in, new_in = inner.chunk(3)
    reset_out, update_out, new_out = outer.chunk(3)
    reset, update = (reset_in + reset_out).sigmoid(), (update_in + update_out).sigmoid()
    return (1 - update) * (new_in + reset * new_out).tanh() + update * state


class OneLayer:
    """The parameters of a GRU of one layer under the names of a GRU cell."""

    def __init__(self, gru):
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            setattr(self, name, getattr(gru, f"{name}_l0"))


def loop_gru(gru, vectors):
    state, states = gru.weight_hh_l0.new_zeros(gru.hidden_size), []
    for vector in vectors:
        state = gru_step(OneLayer(gru), vector, state)
        states.append(state)
    return states


def loop_batch_norm(norm, rows, training):
    """Rows of all images together; running statistics in evaluation."""
    table = torch.stack(rows)
    mean, variance = norm.running_mean, norm.running_var
    if training:
        mean, variance = table.mean(dim=0), table.var(dim=0, unbiased=False)
    return [(row - mean) / (variance + norm.eps).sqrt() * norm.weight + norm.bias for row in rows]


def loop_normalized(regions, over):
    if over == "feature":
        return [region / region.norm() for region in regions]
    norms = sum(region**2 for region in regions).sqrt()
    return [region / norms for region in regions]


def loop_reasoned(built, inputs, spec, training):
    """Regions of each image behind the graph, as lists without padding."""
    images = [
        [linear(built.region_map, inputs.features[image, region]) for region in range(count)]
        for image, count in enumerate(inputs.counts.tolist())
    ]
    if spec.mode == "coco":
        images = [loop_normalized(regions, spec.region_normalization) for regions in images]
    for block in built.graph:
        updates = []
        for regions in images:
            for one in regions:
                gathered = 0
                for other in regions:
                    affinity = linear(block.theta, one) @ linear(block.phi, other)
                    if spec.graph == "released":
                        affinity = affinity / len(regions)
                    gathered = gathered + affinity * linear(block.g, other)
                updates.append(linear(block.w, gathered))
        if spec.graph == "released":
            updates = loop_batch_norm(block.norm, updates, training)
        flowing = iter(updates)
        images = [[region + next(flowing) for region in regions] for regions in images]
    return [loop_normalized(regions, spec.region_normalization) for regions in images]


def loop_images(built, inputs, spec, training):
    states = [loop_gru(built.region_gru, regions)[-1] for regions in loop_reasoned(built, inputs, spec, training)]
    if spec.mode == "flickr30k":
        states = loop_batch_norm(built.image_norm, states, training)
    return torch.stack([state / state.norm() for state in states])


def loop_captions(built, captions):
    embedded = []
    for ids, length in zip(captions.tokens, captions.lengths.tolist(), strict=True):
        state = loop_gru(built.word_gru, built.words.weight[ids[:length]])[-1]
        embedded.append(state / state.norm())
    return torch.stack(embedded)


def loop_generation(built, regions_of, captions, rows, *, longest=60):
    """Sum over words of -log p, mean over captions; all longest - 1 steps are unrolled, as in the reference."""
    parts, total = built.generator, 0
    for ids, length, row in zip(captions.tokens, captions.lengths.tolist(), rows.tolist(), strict=True):
        labels = ids[:length].tolist()
        if len(labels) > longest:
            labels = [*labels[: longest - 1], labels[-1]]
        mask = [1.0] * (len(labels) + 1) + [0.0] * longest
        labels = labels + [0] * (longest + 1)
        states = loop_gru(parts.encoder, [linear(parts.region_map, region) for region in regions_of[row]])
        state = states[-1]
        for step in range(longest - 1):
            scores = torch.cat([
                parts.attention_score.weight @ linear(parts.attention_map, torch.cat((one, state))).tanh()
                for one in states
            ])
            context = sum(weight * one for weight, one in zip(scores.softmax(dim=0), states, strict=True))
            word = parts.words.weight[labels[step]]
            state = gru_step(parts.decoder, torch.cat((word, context)), state)
            log_probabilities = linear(parts.output, state).log_softmax(dim=0)
            total = total - mask[step + 1] * log_probabilities[labels[step + 1]]
    return total / len(captions.tokens)


def gradients(total, built):
    return torch.autograd.grad(total, list(built.parameters()), allow_unused=True, materialize_grads=True)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
@pytest.mark.parametrize("options", VARIANTS)
def test_embeddings_and_gradients_equal_plain_loops(options, training, dtype, tolerance):
    built = make(**options).to(dtype).train(training)
    images, captions = draw()
    images = ImageInputs(images.features.to(dtype), images.counts)
    weights = torch.randn(2, 4, 8, dtype=dtype)
    fast = built.encode_images(images).vectors, built.encode_captions(captions).vectors
    slow = loop_images(built, images, built._spec, training), loop_captions(built, captions)
    for one, other in zip(fast, slow, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)
    sums = [sum((weight * side).sum() for weight, side in zip(weights, sides, strict=True)) for sides in (fast, slow)]
    for one, other in zip(gradients(sums[0], built), gradients(sums[1], built), strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("longest", [60, 6])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_the_generation_loss_and_its_gradients_equal_plain_loops(longest, dtype, tolerance):
    # coco: no BatchNorm over images; that of the graph is left in evaluation for the sake of float32
    built = make(mode="coco", captioning_words=longest, captioning_weight=0.5).to(dtype).train()
    built.graph.eval()
    images, captions = draw(images=3, captions=5)
    images = ImageInputs(images.features.to(dtype), images.counts)
    captions = CaptionInputs(captions.tokens, torch.tensor([9, 5, 6, 1, 7]))
    rows = torch.tensor([0, 0, 2, 1, 2])
    fast = built.captioning_loss(built.encode_images(images), captions, rows)
    slow = 0.5 * loop_generation(
        built, loop_reasoned(built, images, built._spec, False), captions, rows, longest=longest
    )
    torch.testing.assert_close(fast, slow, rtol=tolerance, atol=tolerance)
    for one, other in zip(gradients(fast, built), gradients(slow, built), strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


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
