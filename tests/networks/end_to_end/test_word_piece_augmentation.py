"""Words of several pieces are masked, replaced or deleted whole."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from vsetune.networks.vse_infinity.network import drop_word_pieces

MASK, START, END, VOCABULARY = 4, 2, 3, 1000
CONTINUES = torch.zeros(VOCABULARY, dtype=torch.bool)
CONTINUES[30:60] = True
CAPTIONS = [[START, 10, 30, 31, 11, 12, 32, END], [START, 13, END], [START, END], [START, 14, 15, 33, END]]


def padded(captions: list[list[int]]) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([len(ids) for ids in captions])
    longest = int(lengths.max())
    return torch.tensor([ids + [0] * (longest - len(ids)) for ids in captions]), lengths


def dropped(tokens: Tensor, lengths: Tensor, probability: float = 0.2) -> tuple[Tensor, Tensor]:
    return drop_word_pieces(
        tokens, lengths, probability=probability, mask=MASK, fixed=(START, END), continues=CONTINUES
    )


def words_of(ids: list[int]) -> list[list[int]]:
    """Positions of the pieces of each word."""
    words: list[list[int]] = []
    for position, piece in enumerate(ids):
        if piece in (START, END):
            continue
        if CONTINUES[piece] and words:
            words[-1].append(position)
        else:
            words.append([position])
    return words


@pytest.mark.parametrize("probability", [0.0, 0.2, 0.6, 0.99])
@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_loop_over_words(seed: int, probability: float) -> None:
    tokens, lengths = padded(CAPTIONS)
    torch.manual_seed(seed)
    found, found_lengths = dropped(tokens, lengths, probability)
    torch.manual_seed(seed)
    selected, fate = torch.rand(tokens.shape), torch.rand(tokens.shape)
    replacements = torch.randint(1, VOCABULARY, tokens.shape)
    for row, ids in enumerate(CAPTIONS):
        words, new, gone = words_of(ids), list(ids), set()
        for positions in words:
            if selected[row, positions[0]] >= probability:
                continue
            for position in positions:
                if fate[row, positions[0]] < 0.5:
                    new[position] = MASK
                elif fate[row, positions[0]] < 0.6:
                    new[position] = int(replacements[row, position])
                else:
                    gone.add(position)
        if words and len(gone) == sum(map(len, words)):
            gone -= set(min(words, key=lambda positions: fate[row, positions[0]]))
        kept = [piece for position, piece in enumerate(new) if position not in gone]
        assert found[row, : found_lengths[row]].tolist() == kept
        assert not found[row, found_lengths[row] :].any()


def test_words_are_selected_in_the_published_shares() -> None:
    torch.manual_seed(0)
    tokens = torch.tensor([START, *[10, 30, 31] * 8, END]).repeat(8000, 1)
    found, lengths = dropped(tokens, torch.full((8000,), 26))
    words = 8000 * 8
    masked = (found == MASK).sum() / 3
    deleted = (26 - lengths).sum() / 3
    assert masked / words == pytest.approx(0.2 * 0.5, abs=0.005)
    assert deleted / words == pytest.approx(0.2 * 0.4, abs=0.005)
    replaced = (~torch.isin(found, torch.tensor([0, START, END, MASK, 10, 30, 31]))).sum() / 3
    assert replaced / words == pytest.approx(0.2 * 0.1, abs=0.003)


def test_start_and_end_are_never_touched_and_a_word_stays() -> None:
    torch.manual_seed(0)
    tokens, lengths = padded(CAPTIONS * 200)
    found, new = dropped(tokens, lengths, 0.999)
    assert (found[:, 0] == START).all()
    assert (found.gather(1, new[:, None] - 1) == END).all()
    has_words = lengths > 2
    assert (new[has_words] > 2).all()
    assert (new[~has_words] == 2).all()
