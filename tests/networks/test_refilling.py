"""Synthetic sentences: how masked places are filled in, which sentences are negatives, and which of them are kept."""

from __future__ import annotations

import pytest
import torch
from loops.sentence_filter import judge_sentences, replaced_words, words_of

from vsetune.networks.tags.generator import best_sentences, refill
from vsetune.networks.tags.sentence_terms import masked_word_loss
from vsetune.networks.tags.word_masking import choose_phrases, mask_captions, phrase_rates, words_as_phrases

CAPTION = [1, 10, 11, 12, 13, 2]  # start a dog runs fast end
OTHERS = [[1, 20, 21, 2], [1, 10, 30, 2]]


def test_masked_places_are_drawn_with_the_temperature_and_no_other_place_changes() -> None:
    tokens, is_chosen = torch.tensor([[1, 4, 7, 2], [1, 5, 4, 2]]), torch.zeros(2, 4, dtype=torch.bool)
    is_chosen[0, 1] = is_chosen[1, 2] = True
    logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 0.0, 60.0]])
    torch.manual_seed(0)
    sentences = refill(logits, tokens, is_chosen, temperature=1.5, refills=30_000)
    assert sentences.shape == (30_000, 2, 4)
    assert torch.equal(sentences[:, ~is_chosen], tokens[~is_chosen].expand(30_000, 6))
    shares = sentences[:, 0, 1].bincount(minlength=3) / 30_000
    assert shares.tolist() == pytest.approx([0.562742, 0.288921, 0.148337], abs=0.01)
    assert (sentences[:, 1, 2] == 2).all()


@pytest.mark.parametrize(("sentence", "finding"), [
    (CAPTION, "identical"),
    ([1, 10, 99, 12, 13, 2], "negative"),
    ([1, 10, 21, 12, 13, 2], "false_negative"),  # another caption has the word
    ([1, 10, 21, 12, 30, 2], "false_negative"),  # both words are in captions, though not in the same
    ([1, 10, 21, 12, 99, 2], "negative"),  # one of two words is new
    ([1, 10, 13, 12, 11, 2], "false_negative"),  # words of the caption itself at other places
])
def test_a_sentence_is_a_negative_when_a_replaced_word_is_in_no_caption_of_the_image(
    sentence: list[int], finding: str
) -> None:
    assert judge_sentences([sentence], CAPTION, OTHERS) == [finding]


def test_a_sentence_that_was_there_before_is_a_duplicate() -> None:
    new, other = [1, 10, 99, 12, 13, 2], [1, 10, 98, 12, 13, 2]
    assert judge_sentences([new, other, new], CAPTION, []) == ["negative", "negative", "duplicate"]


def test_whole_words_are_compared_where_words_are_cut_into_pieces() -> None:
    continues = {50, 51}
    caption, others = [1, 10, 11, 50, 2], [[1, 12, 51, 2], [1, 13, 2]]
    assert words_of(caption, continues) == [(0, (1,)), (1, (10,)), (2, (11, 50)), (4, (2,))]
    # its second piece changed: the word is 11 51, of which the captions have only the pieces
    assert replaced_words([1, 10, 11, 51, 2], caption, continues) == {(11, 51)}
    sentences = [[1, 10, 11, 51, 2], [1, 10, 12, 51, 2], [1, 13, 11, 50, 2]]
    found = judge_sentences(sentences, caption, others, continues=continues)
    assert found == ["negative", "false_negative", "false_negative"]
    assert judge_sentences(sentences[:1], caption, others) == ["false_negative"]  # by pieces


def test_the_best_sentences_of_every_caption_are_kept_highest_first() -> None:
    scores = torch.tensor([0.85, 0.60, 0.95, 0.1, 0.72, 0.85])
    owners = torch.tensor([4, 4, 4, 1, 4, 4])
    assert best_sentences(scores, owners, 2).tolist() == [3, 2, 0]
    assert best_sentences(scores, owners, 9).tolist() == [3, 2, 0, 5, 4, 1]
    assert best_sentences(scores[:0], owners[:0], 2).tolist() == []


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
    torch.manual_seed(0)
    phrases = words_as_phrases(STARTS, MAY_CHANGE)
    chosen = choose_phrases(phrases, rate=0.15, copies=20_000)[:, 0]
    assert chosen.any(dim=1).all()
    assert not chosen[:, ~MAY_CHANGE[0]].any()
    assert torch.equal(chosen[:, 2], chosen[:, 3])
    # each of three words: 0.15, and a third of the copies that would have none
    assert abs(chosen[:, [1, 2, 4]].double().mean() - (0.15 + 0.85**3 / 3)) < 0.01


def test_a_caption_without_words_has_nothing_chosen() -> None:
    empty = torch.zeros(2, 3, 3, dtype=torch.bool)
    assert not choose_phrases(empty, rate=0.15, copies=4).any()


def test_eight_of_ten_chosen_places_are_masked_one_gets_another_word_and_no_other_place_changes() -> None:
    torch.manual_seed(0)
    tokens = torch.tensor([[1, 7, 8, 9, 10, 2, 0]])
    chosen = choose_phrases(words_as_phrases(STARTS, MAY_CHANGE), rate=0.15, copies=20_000)
    masked = mask_captions(tokens, chosen, mask=4, ordinary=torch.arange(20, 120))
    read = masked.tokens[chosen]
    assert torch.equal(masked.tokens[~chosen], tokens.expand(20_000, 1, 7)[~chosen])
    assert abs((read == 4).double().mean() - 0.8) < 0.01
    assert abs((read >= 20).double().mean() - 0.1) < 0.01
    assert masked.is_chosen is chosen


def test_two_masked_words_of_probability_a_half_and_a_quarter_cost_1_039721() -> None:
    logits = torch.tensor([[0.5, 0.5, 0.0], [0.25, 0.5, 0.25]], dtype=torch.float64).log()
    loss = masked_word_loss(logits, torch.tensor([0, 2]), torch.tensor([5, 5]))
    assert abs(loss.item() - 1.039721) < 1e-6
