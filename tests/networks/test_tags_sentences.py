"""TAGS's generator in training: what it writes, what is kept, and its terms against plain loops, one pair at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from loops.sentence_filter import judge_sentences
from plain_tags import LENGTHS, drawn, gradients, losses_of, make, plain_score, plain_states, plain_word_logits
from torch import Tensor

from vsetune.networks.inputs import CaptionInputs
from vsetune.networks.network_base import TrainingItems
from vsetune.networks.tags.generator import (
    FINDINGS,
    MaskedCopies,
    Sentences,
    judge_all,
    mask_phrases,
    refill,
    write_sentences,
)
from vsetune.networks.tags.network import Tags
from vsetune.networks.tags.spec import TagsSpec

ROWS = torch.tensor([0, 2, 1, 0])
SIBLINGS = [[[1, 7, 8, 2], [1, 9, 9, 9, 2]], [[1, 10, 11, 2]], [], [[1, 12, 13, 14, 15, 2]]]
TERMS = {"mlm_weight": 0.7, "istm_weight": 1.3, "wod_weight": 0.9, "woc_weight": 1.1, "wod_same_weight": 0.11}


def batch() -> CaptionInputs:
    """Captions of lengths 6, 3, 1 and 5; the third has nothing to mask."""
    padded = torch.zeros(4, 2, 6, dtype=torch.int64)
    for row, group in zip(padded, SIBLINGS, strict=True):
        for place, sibling in zip(row, group, strict=False):
            place[: len(sibling)] = torch.tensor(sibling)
    return replace(drawn()[1], siblings=padded)


def ids_of(caption: int) -> list[int]:
    return [int(number) for number in batch().tokens[caption, : int(LENGTHS[caption])]]


def mean(values: list[Tensor]) -> Tensor:
    return torch.stack(values).mean() if values else torch.zeros((), dtype=torch.float64)


def nll(logits: Tensor, right: int) -> Tensor:
    return logits.exp().sum().log() - logits[right]


def plain_copies(network: Tags, copies: MaskedCopies) -> tuple[Tensor, Tensor]:
    """L_MLM, and the logits of all chosen places."""
    logits: list[Tensor] = []
    of_caption: dict[int, list[Tensor]] = {}
    assert network.masked_words is not None
    for copy, caption in enumerate(copies.owners.tolist()):
        tokens = copies.captions.tokens[copy, : int(LENGTHS[caption])].tolist()
        states = plain_states(network, tokens, int(ROWS[caption]))
        for place in copies.is_chosen[copy].nonzero().flatten().tolist():
            logits.append(plain_word_logits(network, network.masked_words, states[place]))
            of_caption.setdefault(caption, []).append(nll(logits[-1], ids_of(caption)[place]))
    return mean([mean(losses) for losses in of_caption.values()]), torch.stack(logits)


Pool = list[tuple[list[int], list[int]]]


def plain_pools(network: Tags, copies: MaskedCopies, logits: Tensor, most: int) -> dict[int, Pool]:
    """By caption the best negatives: their ids, and the places that were masked."""
    logits = logits.detach().clone()
    logits[:, :5] = float("-inf")
    written = refill(logits, batch().tokens[copies.owners], copies.is_chosen, temperature=1.5, refills=2)
    pools = {}
    for caption in sorted(set(copies.owners.tolist())):
        own = [copy for copy in range(len(copies.owners)) if copies.owners[copy] == caption]
        made = [
            (written[number, copy, : int(LENGTHS[caption])].tolist(), copies.is_chosen[copy].nonzero()[:, 0].tolist())
            for number in range(2) for copy in own
        ]
        findings = judge_sentences([ids for ids, _ in made], ids_of(caption), SIBLINGS[caption])
        kept = [each for each, finding in zip(made, findings, strict=True) if finding == "negative"]
        scores = [plain_score(network, ids, int(ROWS[caption])).item() for ids, _ in kept]
        best = sorted(range(len(kept)), key=lambda number: -scores[number])[:most]
        pools[caption] = [kept[number] for number in best]
    return pools


def plain_losses(network: Tags) -> dict[str, Tensor]:
    torch.manual_seed(5)
    copies = mask_phrases(batch(), network.ids, rate=0.15, copies=2)
    mlm, logits = plain_copies(network, copies)
    pools = plain_pools(network, copies, logits, most=3)
    istm, wod, woc = [], [], []
    assert network.replaced_words is not None
    assert network.corrected_words is not None
    for caption, pool in pools.items():
        if not pool:
            continue
        own, image = ids_of(caption), int(ROWS[caption])
        matched = plain_score(network, own, image)
        istm.append(mean([(0.2 - matched + plain_score(network, ids, image)).clamp(min=0) for ids, _ in pool]))
        found, mended = [], []
        for ids, masked in pool:
            states = plain_states(network, ids, image)
            places = [place for place, word in enumerate(own) if word >= 5]
            same = [int(ids[place] == own[place]) for place in places]
            found.append(mean([
                nll(network.replaced_words(states[place]), label) * (0.11 if label else 1.0)
                for place, label in zip(places, same, strict=True)
            ]))
            mended += [
                nll(plain_word_logits(network, network.corrected_words, states[place]), own[place]) for place in masked
            ]
        wod.append(mean(found))
        woc.append(mean(mended))
    return {"mlm": mlm * 0.7, "istm": mean(istm) * 1.3, "wod": mean(wod) * 0.9, "woc": mean(woc) * 1.1}


def test_all_terms_and_their_gradients_are_those_of_one_pair_at_a_time_in_plain_loops() -> None:
    network = make(**TERMS, masked_copies=2).train()
    torch.manual_seed(5)
    found, expected = losses_of(network, drawn()[0], batch(), ROWS), plain_losses(network)
    assert found.keys() == expected.keys()
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name], rtol=0, atol=1e-9, msg=name)
        assert value > 0
    of_batch, of_loops = (gradients(network, torch.stack([*terms.values()]).sum()) for terms in (found, expected))
    torch.testing.assert_close(of_batch, of_loops, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("continues", [[], [7, 11, 15, 16, 19]], ids=["words", "pieces"])
def test_the_filter_of_a_whole_batch_is_that_of_one_caption_at_a_time(continues: list[int]) -> None:
    generator = torch.Generator().manual_seed(0)
    captions, owners = batch(), torch.randint(2, (400,), generator=generator)
    is_masked = torch.rand(400, 6, generator=generator) < 0.3
    is_masked &= (captions.tokens >= 5)[owners]
    drawn_words = torch.randint(5, 20, (400, 6), generator=generator)
    sentences = torch.where(is_masked, drawn_words, captions.tokens[owners])
    is_inner = torch.zeros(20, dtype=torch.bool)
    is_inner[continues] = True
    assert captions.siblings is not None
    found = judge_all(sentences, owners, captions.tokens, captions.siblings, is_inner)
    for caption in (0, 1):
        rows = sentences[owners == caption][:, : int(LENGTHS[caption])].tolist()
        expected = judge_sentences(rows, ids_of(caption), SIBLINGS[caption], continues=set(continues))
        assert [FINDINGS[number] for number in found[owners == caption].tolist()] == expected
        assert set(expected) == set(FINDINGS)


def test_the_kept_sentences_score_no_lower_than_any_other_and_are_scored_without_dropout_or_gradient() -> None:
    network = make(**TERMS, dropout=0.5).train()
    images, captions = drawn()[0], batch()
    encoded = network.encode_images(images), network.encode_captions(captions)
    items = TrainingItems(*encoded, captions, ROWS, torch.ones(3, 4, dtype=torch.bool))
    torch.manual_seed(2)
    copies = mask_phrases(captions, network.ids, rate=0.15, copies=3)
    logits, state = torch.randn(len(copies.words), 20, dtype=torch.float64), torch.get_rng_state()
    pool = network.hardest_sentences(items, copies, logits)
    torch.set_rng_state(state)
    negatives = write_sentences(copies, logits, captions, network.ids, temperature=1.5, refills=2).negatives()
    scores = network.sentence_scores(items, negatives)
    assert network.training
    assert not scores.requires_grad
    loops = [
        plain_score(network, ids[: int(LENGTHS[owner])], int(ROWS[owner])).item()
        for ids, owner in zip(negatives.tokens.tolist(), negatives.owners.tolist(), strict=True)
    ]
    torch.testing.assert_close(scores, torch.tensor(loops, dtype=torch.float64), rtol=0, atol=1e-9)
    best = network.sentence_scores(items, pool)
    for owner in (0, 1, 3):
        ranked = scores[negatives.owners == owner].sort(descending=True).values
        torch.testing.assert_close(best[pool.owners == owner], ranked[:3], rtol=0, atol=1e-12)


def test_the_positive_of_the_triplets_is_the_caption_itself_not_the_one_vector_repeated_of_the_released_code() -> None:
    network = make(**TERMS).train()
    images, captions = drawn()[0], batch()
    encoded = network.encode_images(images), network.encode_captions(captions)
    one = CaptionInputs(captions.tokens[:1], captions.lengths[:1])
    pool = Sentences(one.tokens.clone(), torch.zeros(1, dtype=torch.int64), one.tokens > 4, torch.zeros(1))
    pool.tokens[0, 2] = 19 if pool.tokens[0, 2] != 19 else 18
    items = TrainingItems(encoded[0], network.encode_captions(one), one, ROWS[:1], torch.ones(3, 1, dtype=torch.bool))
    found = network._sentence_losses(items, pool)["istm"] / 1.3
    matched, synthetic = (plain_score(network, ids.tolist(), 0) for ids in (one.tokens[0], pool.tokens[0]))
    torch.testing.assert_close(found, (0.2 - matched + synthetic).clamp(min=0), rtol=0, atol=1e-9)
    repeated = encoded[1].vectors[:1, 1:2].expand(1, 10, 8)  # the index is filled with the attention mask, all ones
    state = network.encoder(repeated, torch.ones(1, 10, dtype=torch.bool), torch.zeros(1, 1, dtype=torch.int64))
    released = network.matching(state).sigmoid()[0, 0]
    assert abs(released - matched) > 0.01


@pytest.mark.parametrize("weight", ["mlm_weight", "istm_weight", "wod_weight", "woc_weight"])
def test_whatever_masks_captions_masks_their_phrases(weight: str) -> None:
    none = {"mlm_weight": 0, "istm_weight": 0, "wod_weight": 0, "woc_weight": 0}
    assert TagsSpec.model_validate(none | {weight: 0.1}).reads.phrases
    assert not TagsSpec.model_validate(none).reads.phrases


def test_phrases_are_masked_whole_and_words_where_a_caption_has_none() -> None:
    network, captions = make(), batch()
    phrases = torch.zeros(4, 2, 6, dtype=torch.bool)
    phrases[0, 0, [1, 2]] = phrases[0, 1, [2, 3]] = phrases[3, 0, [0, 1]] = True  # the start is never masked
    found = network.ids.phrases(replace(captions, phrases=phrases))
    of_captions = [[row.nonzero()[:, 0].tolist() for row in caption if row.any()] for caption in found]
    assert of_captions == [[[1, 2], [2, 3]], [[1], [2]], [], [[1]]]
    copies = mask_phrases(replace(captions, phrases=phrases), network.ids, rate=0.15, copies=20)
    chosen = {tuple(row.nonzero()[:, 0].tolist()) for row in copies.is_chosen[copies.owners == 0]}
    assert chosen <= {(1, 2), (2, 3), (1, 2, 3)}


def test_the_head_of_corrections_starts_as_that_of_masked_words_when_its_phase_begins() -> None:
    network = make(**TERMS)
    network.begin_phase(TagsSpec.model_validate(network._spec.to_plain() | {"woc_weight": 0.0}))
    assert network.masked_words is not None
    assert network.corrected_words is not None
    before = {name: value.clone() for name, value in network.corrected_words.state_dict().items()}
    assert losses_of(network, drawn()[0], batch(), ROWS).keys() == {"mlm", "istm", "wod"}
    assert all(torch.equal(value, before[name]) for name, value in network.corrected_words.state_dict().items())
    network.begin_phase(TagsSpec.model_validate(network._spec.to_plain() | {"woc_weight": 1.0}))
    masked = network.masked_words.state_dict()
    assert all(torch.equal(value, masked[name]) for name, value in network.corrected_words.state_dict().items())
    assert not torch.equal(masked["norm.weight"], before["norm.weight"])


def test_without_masked_words_no_sentences_are_written_unless_they_are_asked_for() -> None:
    assert not TagsSpec.model_validate({"name": "tags", "mlm_weight": 0}).writes_sentences
    network = make(mlm_weight=0, istm_weight=0.1).train()
    losses = losses_of(network, drawn()[0], batch(), ROWS)
    assert losses.keys() == {"istm"}
    losses["istm"].backward()
    assert network.masked_words is not None
    assert all(parameter.grad is None for parameter in network.masked_words.parameters())
