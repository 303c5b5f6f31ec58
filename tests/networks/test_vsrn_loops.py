"""VSRN and its caption generator against plain loops over images, regions, words and gates."""

from __future__ import annotations

import pytest
import torch

from vsetune.networks.inputs import CaptionInputs, ImageInputs
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
