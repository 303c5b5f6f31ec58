"""VSRN and its caption generator against plain loops over images, regions, words and gates."""

from __future__ import annotations

import pytest
import torch
from plain_networks import (
    REGIONS,
    VOCABULARY,
    WIDTH,
    assert_same_with_gradients,
    draw,
    gru_step,
    gru_weights,
    linear,
    loop_batch_norm,
    loop_gru,
    unit,
)
from torch.nn.functional import pad

from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.parts.packing import RealParts
from vsetune.networks.parts.region_graph import normalized_regions
from vsetune.networks.vsrn.network import Vsrn
from vsetune.networks.vsrn.spec import VsrnSpec

SMALL = {"embedding_size": 8, "word_size": 5, "captioning_size": 6, "captioning_dropout": 0.0}
VARIANTS = [
    {"mode": "coco"},
    {"mode": "flickr30k"},
    {"mode": "coco", "region_normalization": "feature", "graph": "paper"},
    {"mode": "flickr30k", "graph": "paper"},
]


def fresh(**options):
    torch.manual_seed(0)
    return Vsrn(VsrnSpec(**(SMALL | options)), width=WIDTH, vocabulary_size=VOCABULARY).double()


def make(**options):
    """A network in evaluation mode, moved away from where it starts (blocks start as the identity)."""
    built = fresh(**options)
    with torch.no_grad():
        for block in built.graph:
            last = block.norm if block.norm is not None else block.w
            # regions grow along the paper's graph, which has no BatchNorm: with more, rounding grows with them
            last.weight.normal_(std=0.5 if block.norm is not None else 0.2)
            last.bias.normal_(std=0.1)
    return built.eval()


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
            updates = loop_batch_norm(block.norm, updates, training=training)
        flowing = iter(updates)
        images = [[region + next(flowing) for region in regions] for regions in images]
    return [loop_normalized(regions, spec.region_normalization) for regions in images]


def loop_images(built, inputs, spec, training):
    states = [loop_gru(built.region_gru, regions)[-1] for regions in loop_reasoned(built, inputs, spec, training)]
    if spec.mode == "flickr30k":
        states = loop_batch_norm(built.image_norm, states, training=training)
    return torch.stack([unit(state) for state in states])


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
            state = gru_step(gru_weights(parts.decoder), torch.cat((word, context)), state)
            log_probabilities = linear(parts.output, state).log_softmax(dim=0)
            total = total - mask[step + 1] * log_probabilities[labels[step + 1]]
    return total / len(captions.tokens)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("options", VARIANTS)
def test_embeddings_and_gradients_equal_plain_loops(options, training):
    built, (images, captions) = make(**options).train(training), draw(4)
    fast = built.encode_images(images).vectors, built.encode_captions(captions).vectors
    slow = loop_images(built, images, built._spec, training), loop_captions(built, captions)
    assert_same_with_gradients(built, fast, slow)


@pytest.mark.parametrize("longest", [60, 6])
def test_the_generation_loss_and_its_gradients_equal_plain_loops(longest):
    built, (images, captions) = make(mode="coco", captioning_words=longest, captioning_weight=0.5), draw(3, 5)
    built.train()
    captions = CaptionInputs(captions.tokens, torch.tensor([9, 5, 6, 1, 7]))
    rows = torch.tensor([0, 0, 2, 1, 2])
    fast = built.captioning_loss(built.encode_images(images), captions, rows)
    slow = 0.5 * loop_generation(
        built, loop_reasoned(built, images, built._spec, True), captions, rows, longest=longest
    )
    assert_same_with_gradients(built, [fast], [slow])


def test_padded_regions_labels_and_ids_behind_the_end_do_not_change_the_generation_loss():
    built, (images, captions), rows = make().train(), draw(4), torch.arange(4)
    longer = CaptionInputs(pad(captions.tokens, (0, 7), value=3), captions.lengths)
    padded = ImageInputs(pad(images.features, (0, 0, 0, 2), value=9.0), images.counts)
    loss, *others = (
        built.captioning_loss(built.encode_images(some), words, rows)
        for some, words in ((images, captions), (images, longer), (padded, captions))
    )
    for other in others:
        torch.testing.assert_close(other, loss, rtol=0, atol=1e-12)


def test_without_weight_there_is_no_generator_and_the_rest_starts_the_same():
    images, captions = draw(4)
    whole, plain = (fresh(captioning_weight=weight) for weight in (1.0, 0.0))
    assert plain.generator is None
    named = whole.state_dict()
    assert all(torch.equal(value, named[name]) for name, value in plain.state_dict().items())
    assert plain.captioning_loss(plain.encode_images(images), captions, torch.arange(4)) == 0


def test_evaluation_keeps_no_regions_and_has_no_generation_loss():
    built = make()
    images, captions = draw(4)
    with pytest.raises(TypeError, match="needs images encoded in training mode"):
        built.captioning_loss(built.encode_images(images), captions, torch.arange(4))


@pytest.mark.parametrize("graph", ["released", "paper"])
@pytest.mark.parametrize("training", [False, True])
def test_a_new_graph_block_returns_its_input(graph, training):
    built = fresh(graph=graph).train(training)
    regions = torch.randn(3, REGIONS, 8, dtype=torch.float64)
    for block in built.graph:
        assert torch.equal(block(regions, RealParts.of_lengths(torch.full((3,), REGIONS), REGIONS, regions)), regions)


def test_normalising_by_hand():
    # channel 0 is (3, 4) over two regions, channel 1 is (0, 2); region 0 is (3, 0), region 1 is (4, 2)
    regions, length = torch.tensor([[[3.0, 0.0], [4.0, 2.0]]]), 20**0.5
    channels, features = (normalized_regions(regions, over) for over in ("channel_over_regions", "feature"))
    torch.testing.assert_close(channels, torch.tensor([[[0.6, 0.0], [0.8, 1.0]]]))
    torch.testing.assert_close(features, torch.tensor([[[1.0, 0.0], [4 / length, 2 / length]]]))


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
