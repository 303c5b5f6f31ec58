"""Synthetic sentences: masked captions filled in by the network's own guesses, and which of them are negatives.

After Fan et al. 2022, Sections 2.1.1 and 2.1.2. Letters of shapes: B masked captions, L ids, T masked places of all of
them, V words, N refills of each, C sentences. Nothing here has a gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Literal

import torch
from torch import Tensor

Finding = Literal["negative", "identical", "duplicate", "false_negative"]
"""What a sentence is: to be used; equal to its caption; equal to an earlier one; true of the image, as far as its
captions tell."""

Word = tuple[int, ...]
"""Ids of the pieces of a word; of one piece where words are not cut."""


@torch.no_grad()
def refill(
    logits: Tensor, tokens: Tensor, is_chosen: Tensor, *, temperature: float, refills: int,
    generator: torch.Generator | None = None,
) -> Tensor:
    """(N, B, L) sentences, each masked place drawn from softmax(logits / temperature), all other ids unchanged (Eq. 2).

    logits: (T, V), of the places in the order of `is_chosen.nonzero()`. tokens: (B, L). is_chosen: (B, L) bool.
    """
    drawn = torch.multinomial((logits / temperature).softmax(dim=1), refills, replacement=True, generator=generator)
    sentences = tokens.repeat(refills, 1, 1)
    sentences[:, is_chosen] = drawn.T
    return sentences


def words_of(ids: Sequence[int], continues: AbstractSet[int]) -> list[tuple[int, Word]]:
    """(place of its first id, its ids) of every word. continues: ids of pieces that belong to the word before them."""
    words: list[tuple[int, Word]] = []
    for place, piece in enumerate(ids):
        if words and piece in continues:
            start, word = words[-1]
            words[-1] = start, (*word, piece)
        else:
            words.append((place, (piece,)))
    return words


def replaced_words(sentence: Sequence[int], caption: Sequence[int], continues: AbstractSet[int]) -> set[Word]:
    """Words of a sentence that hold at least one id which its caption, of the same length, does not have there."""
    return {
        word for start, word in words_of(sentence, continues)
        if word != tuple(caption[start : start + len(word)])
    }


def judge_sentences(
    sentences: Sequence[Sequence[int]], caption: Sequence[int], others: Sequence[Sequence[int]],
    *, continues: AbstractSet[int] = frozenset(),
) -> list[Finding]:
    """What each sentence is, beside the caption that it was made from.

    Without padding: ids of the sentences, which are as long as the caption; others: of all other captions of the image.
    A false negative has no replaced word that neither the caption nor any of the others has. By whole words; without
    `continues` by ids. The released code does not remove any of them for certain (decision 0017).
    """
    own = tuple(caption)
    known = {word for each in (own, *others) for _, word in words_of(each, continues)}
    seen: set[tuple[int, ...]] = set()
    findings: list[Finding] = []
    for sentence in map(tuple, sentences):
        if sentence == own:
            findings.append("identical")
        elif sentence in seen:
            findings.append("duplicate")
        elif replaced_words(sentence, own, continues) <= known:
            findings.append("false_negative")
        else:
            findings.append("negative")
        seen.add(sentence)
    return findings


def best_sentences(scores: Tensor, owners: Tensor, most: int) -> Tensor:
    """Rows of the `most` highest scores of every owner, owner by owner, highest first, earlier first among equals.

    scores: (C,). owners: (C,) the caption each was made from; one with fewer sentences keeps all (Eq. 6).
    """
    by_score = scores.argsort(descending=True, stable=True)
    order = by_score[owners[by_score].argsort(stable=True)]
    places = torch.arange(len(order), device=order.device)
    is_first = torch.ones_like(order, dtype=torch.bool)
    is_first[1:] = owners[order[1:]] != owners[order[:-1]]
    rank = places - torch.where(is_first, places, 0).cummax(dim=0).values if len(order) else places
    return order[rank < most]
