"""A training step of TAGS-DC one positive at a time, as its released code takes it.

Every copy and every sentence encodes the regions of the image anew, logits of words are computed at all places, all
K x L sentences are scored, equal ones too, and L_ISTM runs through the transformer apart from L_WoD and L_WoC. Where
decision 0017 departs from the code (which sentences are filtered, which places count), so does this.

Letters of shapes: C sentences of one caption, L words, R regions, P places (words, then regions), D width, V words that
there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from loops.sentence_filter import judge_sentences
from torch import Tensor
from torch.nn.functional import cross_entropy, dropout, gelu

from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import evaluating
from vsetune.networks.tags.generator import MaskedCopies, mask_phrases
from vsetune.networks.tags.network import Tags

MARGIN = 0.2


@dataclass(frozen=True)
class Draws:
    """What is drawn at random for one caption. copies: tokens (K, L), masked. is_chosen: (K, L) bool. sentences:
    (K x refills, L), or None: to be drawn from the logits of the masked copies."""

    copies: Tensor
    is_chosen: Tensor
    sentences: Tensor | None = None


@dataclass(frozen=True)
class Positive:
    """One image and its caption, without padding. features: (R, width). boxes: (R, 4). tokens: (L,). others: captions
    of the image. inputs: the caption as a batch of one."""

    features: Tensor
    boxes: Tensor
    tokens: Tensor
    others: list[list[int]]
    inputs: CaptionInputs


def positives_of(images: ImageInputs, captions: CaptionInputs) -> list[Positive]:
    """Caption i is of image i."""
    assert images.boxes is not None
    assert captions.siblings is not None
    found = []
    for row, (count, length) in enumerate(zip(images.counts.tolist(), captions.lengths.tolist(), strict=True)):
        one = CaptionInputs(
            captions.tokens[row : row + 1, :length], captions.lengths[row : row + 1],
            siblings=captions.siblings[row : row + 1],
        )
        others = [[number for number in sibling if number] for sibling in captions.siblings[row].tolist()]
        found.append(Positive(
            images.features[row, :count], images.boxes[row, :count], one.tokens[0], [o for o in others if o], one
        ))
    return found


def looped_step(
    network: Tags, images: ImageInputs, captions: CaptionInputs, *, hardest: int, draws: Sequence[Draws] | None = None
) -> Tensor:
    """The loss of all five terms, its gradient added to that of the network's parameters, one positive after another.

    hardest: h of L_IRTM, from the batch. draws: one per positive; None: drawn here.
    """
    positives = positives_of(images, captions)
    total = torch.zeros((), dtype=images.features.dtype)
    for number, positive in enumerate(positives):
        drawn = drawn_copies(network, positive) if draws is None else draws[number]
        loss = own_terms(network, positive, drawn) + retrieval_term(network, positives, number, hardest)
        (loss / len(positives)).backward()
        total += loss.detach() / len(positives)
    return total


def drawn_copies(network: Tags, positive: Positive) -> Draws:
    """K masked copies."""
    spec = network._spec
    made: MaskedCopies = mask_phrases(positive.inputs, network.ids, rate=spec.mask_rate, copies=spec.masked_copies)
    return Draws(made.captions.tokens, made.is_chosen)


def own_terms(network: Tags, positive: Positive, draws: Draws) -> Tensor:
    """L_MLM, L_ISTM, L_WoD and L_WoC of one positive, each with its weight."""
    spec, tokens = network._spec, positive.tokens
    states = states_of(network, draws.copies, [positive] * len(draws.copies))[:, : len(tokens)]
    logits = network.masked_words(states, network.inputs.words.weight)
    right = tokens.expand_as(draws.copies)
    total = spec.mlm_weight * cross_entropy(logits[draws.is_chosen], right[draws.is_chosen])
    pool, is_masked = hardest_sentences(network, positive, draws, logits.detach())
    if not len(pool):
        return total
    scores = scores_of(network, torch.cat((tokens[None], pool)), [positive] * (1 + len(pool)))
    total = total + spec.istm_weight * (spec.istm_margin - scores[0] + scores[1:]).relu().mean()
    if not spec.wod_weight and not spec.woc_weight:
        return total
    states = states_of(network, pool, [positive] * len(pool))[:, : len(tokens)]
    labels = (pool == tokens).long()
    found = cross_entropy(network.replaced_words(states).mT, labels, reduction="none")
    is_word = network.ids.may_change(positive.inputs)[0]
    total = total + spec.wod_weight * found[:, is_word].mean()
    mended = network.corrected_words(states, network.inputs.words.weight)
    return total + spec.woc_weight * cross_entropy(mended[is_masked], tokens.expand_as(pool)[is_masked])


@torch.no_grad()
def hardest_sentences(network: Tags, positive: Positive, draws: Draws, logits: Tensor) -> tuple[Tensor, Tensor]:
    """(m, L) the negatives that score highest, and (m, L) bool, their masked places. logits: (K, L, V)."""
    spec, tokens = network._spec, positive.tokens
    sentences = draws.sentences
    if sentences is None:
        ordinary = network.ids.ordinary(tokens.device)
        among = torch.full_like(logits, -math.inf).index_copy(2, ordinary, logits[..., ordinary])
        weights = (among / spec.refill_temperature).softmax(dim=2).flatten(0, 1)
        words = torch.multinomial(weights, spec.refills, replacement=True).T.view(spec.refills, *draws.copies.shape)
        sentences = torch.where(draws.is_chosen, words, tokens).flatten(0, 1)
    is_masked = draws.is_chosen.repeat(spec.refills, 1)
    with evaluating(network):
        scores = scores_of(network, sentences, [positive] * len(sentences))
    continues = set(network.ids.continues(tokens.device).nonzero().flatten().tolist())
    findings = judge_sentences(sentences.tolist(), tokens.tolist(), positive.others, continues=continues)
    is_negative = torch.tensor([finding == "negative" for finding in findings])
    best = scores.masked_fill(~is_negative, -1.0).argsort(descending=True, stable=True)
    best = best[: min(spec.synthetic_negatives, int(is_negative.sum()))]
    return sentences[best], is_masked[best]


def retrieval_term(network: Tags, positives: list[Positive], number: int, hardest: int) -> Tensor:
    """L_IRTM of one positive: the h hardest of the others of the batch, per direction, then those once more."""
    own = positives[number]
    others = positives[:number] + positives[number + 1 :]
    total = own.features.new_zeros(())
    for captions, images in (([other.tokens for other in others], [own] * len(others)),
                             ([own.tokens] * len(others), others)):
        with evaluating(network):
            scores = scores_of(network, captions, images)
        kept = scores.topk(min(hardest, len(scores))).indices.tolist()
        found = scores_of(
            network, [own.tokens, *(captions[place] for place in kept)], [own, *(images[place] for place in kept)]
        )
        total = total + (MARGIN - found[0] + found[1:]).relu().mean()
    return total


def scores_of(network: Tags, sentences: Tensor | list[Tensor], images: list[Positive]) -> Tensor:
    """(C,) scores of sentences with the images beside them."""
    return network.matching(states_of(network, sentences, images)[:, 0]).sigmoid()


def states_of(network: Tags, sentences: Tensor | list[Tensor], images: list[Positive]) -> Tensor:
    """(C, P, D) states behind the last layer of sentences with the images beside them."""
    lengths = [len(sentence) for sentence in sentences]
    tokens = torch.nn.utils.rnn.pad_sequence(list(sentences), batch_first=True)
    counts = [len(image.features) for image in images]
    features, boxes = (
        torch.nn.utils.rnn.pad_sequence([getattr(image, name) for image in images], batch_first=True)
        for name in ("features", "boxes")
    )
    is_real = torch.cat((real(lengths, tokens.shape[1]), real(counts, features.shape[1])), dim=1)
    states = torch.cat((network.inputs.of_words(tokens), network.inputs.of_regions(features, boxes)), dim=1)
    states = network.encoder.dropout(states)
    for layer in network.encoder.layers:
        states = layer_of(layer, states, torch.where(is_real, 0.0, -10_000.0)[:, None, None].to(states))
    return states


def real(lengths: list[int], longest: int) -> Tensor:
    return torch.arange(longest) < torch.tensor(lengths)[:, None]


def layer_of(layer: Any, states: Tensor, mask: Tensor) -> Tensor:
    """A layer as BERT's own code has it: scores of attention, softmax, dropout, sum. mask: added to the scores."""
    query, key, value = map(layer._by_head, (layer.query(states), layer.key(states), layer.value(states)))
    weights = (query @ key.mT / math.sqrt(query.shape[-1]) + mask).softmax(dim=-1)
    found = dropout(weights, layer.dropout.p, layer.training) @ value
    mixed = layer.attention_norm(states + layer.dropout(layer.attended(found.transpose(1, 2).flatten(2))))
    return layer.output_norm(mixed + layer.dropout(layer.outer(gelu(layer.inner(mixed)))))
