"""Masked copies of captions: hand-made cases, frequencies, and the loss of guessing masked words."""

from __future__ import annotations

import torch
from torch.nn.functional import log_softmax

from vsetune.networks.tags.sentence_terms import masked_word_loss
from vsetune.networks.tags.word_masking import choose_phrases, mask_captions, phrase_rates, words_as_phrases

# start, a, dog ##s, run, end, padding
STARTS = torch.tensor([[0, 1, 2, 2, 4, 5, 6]])
MAY_CHANGE = torch.tensor([[False, True, True, True, True, False, False]])


def phrases_of(places: list[list[int]], length: int) -> torch.Tensor:
    phrases = torch.zeros(1, len(places), length, dtype=torch.bool)
    for phrase, inside in enumerate(places):
        phrases[0, phrase, inside] = True
    return phrases


def test_without_phrases_a_word_is_a_phrase_with_all_its_pieces() -> None:
    phrases = words_as_phrases(STARTS, MAY_CHANGE)[0]
    assert [row.nonzero().flatten().tolist() for row in phrases] == [[], [1], [2, 3], [], [4], [], []]


def test_a_phrase_is_chosen_by_the_mean_rate_of_its_ids_shared_with_other_phrases() -> None:
    # id 1 stands in one phrase, id 2 in two, id 3 in one
    rates = phrase_rates(phrases_of([[1, 2], [2, 3], []], 4), 0.15)
    assert torch.allclose(rates, torch.tensor([[(0.15 + 0.075) / 2, (0.075 + 0.15) / 2, 0.0]]).double())


def test_phrases_are_chosen_whole_as_often_as_their_rate_and_never_none() -> None:
    phrases = words_as_phrases(STARTS, MAY_CHANGE)
    chosen = choose_phrases(phrases, rate=0.15, copies=20_000, generator=torch.Generator().manual_seed(0))[:, 0]
    assert chosen.any(dim=1).all()
    assert not chosen[:, ~MAY_CHANGE[0]].any()
    assert torch.equal(chosen[:, 2], chosen[:, 3])
    # each of three words: 0.15, and a third of the copies that would have none
    assert abs(chosen[:, [1, 2, 4]].double().mean() - (0.15 + 0.85**3 / 3)) < 0.01


def test_a_caption_without_words_has_nothing_chosen() -> None:
    empty = torch.zeros(2, 3, 3, dtype=torch.bool)
    assert not choose_phrases(empty, rate=0.15, copies=4).any()


def test_eight_of_ten_chosen_places_are_masked_one_gets_another_word_and_no_other_place_changes() -> None:
    generator, tokens = torch.Generator().manual_seed(0), torch.tensor([[1, 7, 8, 9, 10, 2, 0]])
    chosen = choose_phrases(words_as_phrases(STARTS, MAY_CHANGE), rate=0.15, copies=20_000, generator=generator)
    masked = mask_captions(tokens, chosen, mask=4, ordinary=torch.arange(20, 120), generator=generator)
    read = masked.tokens[chosen]
    assert torch.equal(masked.tokens[~chosen], tokens.expand(20_000, 1, 7)[~chosen])
    assert abs((read == 4).double().mean() - 0.8) < 0.01
    assert abs((read >= 20).double().mean() - 0.1) < 0.01
    assert masked.is_chosen is chosen


def test_the_generator_alone_decides_what_is_masked() -> None:
    phrases, tokens = words_as_phrases(STARTS, MAY_CHANGE), torch.tensor([[1, 7, 8, 9, 10, 2, 0]])
    found = []
    for seed in (3, 3, 4):
        torch.manual_seed(len(found))
        generator = torch.Generator().manual_seed(seed)
        chosen = choose_phrases(phrases, rate=0.15, copies=30, generator=generator)
        found.append(mask_captions(tokens, chosen, mask=4, ordinary=torch.arange(5, 20), generator=generator).tokens)
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_two_masked_words_of_probability_a_half_and_a_quarter_cost_1_039721() -> None:
    logits = torch.tensor([[0.5, 0.5, 0.0], [0.25, 0.5, 0.25]], dtype=torch.float64).log()
    loss = masked_word_loss(logits, torch.tensor([0, 2]), torch.tensor([5, 5]))
    assert abs(loss.item() - 1.039721) < 1e-6


def test_every_caption_counts_alike_however_many_of_its_words_are_masked() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 6, generator=generator, dtype=torch.float64)
    words, captions = torch.tensor([0, 5, 2, 2, 1]), torch.tensor([7, 2, 7, 7, 2])
    expected = 0.0
    for caption in (2, 7):
        places = [place for place in range(5) if captions[place] == caption]
        losses = [-float(log_softmax(logits[place], dim=0)[words[place]]) for place in places]
        expected += sum(losses) / len(losses) / 2
    assert abs(masked_word_loss(logits, words, captions).item() - expected) < 1e-12
