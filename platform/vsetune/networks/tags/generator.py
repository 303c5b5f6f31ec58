"""The generator of TAGS-DC: masked captions filled in by the network's own guesses (Section 2.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from vsetune.networks.inputs import CaptionInputs
from vsetune.networks.tags.word_masking import CaptionIds, choose_phrases, mask_captions

Finding = Literal["negative", "identical", "duplicate", "false_negative"]
"""The filter's verdict on a sentence: usable; equal to its caption; equal to an earlier one; true of the image, judged
by its captions."""

FINDINGS: tuple[Finding, ...] = ("negative", "identical", "duplicate", "false_negative")
"""By the number that `judge_all` gives."""

_NO_WORD = 0
"""Padding, which is no word: where a word goes on, and behind a caption."""
_FACTOR = 0x5851F42D4C957F2D
"""Odd: words of other pieces get other numbers of 64 bits, but for a chance of about 1 in 2^60."""


@torch.no_grad()
def refill(
    logits: Tensor, tokens: Tensor, is_chosen: Tensor, *, temperature: float, refills: int
) -> Tensor:
    """(N, B, L) sentences: masked places sampled from softmax(logits / temperature), all other ids unchanged (Eq. 2).

    logits: (T, V), of the places in the order of `is_chosen.nonzero()`. tokens: (B, L). is_chosen: (B, L) bool.
    """
    drawn = torch.multinomial((logits / temperature).softmax(dim=1), refills, replacement=True)
    sentences = tokens.repeat(refills, 1, 1)
    sentences[:, is_chosen] = drawn.T
    return sentences


def judge_all(sentences: Tensor, owners: Tensor, captions: Tensor, siblings: Tensor, continues: Tensor) -> Tensor:
    """(C,) int64, the verdicts on the sentences of many captions, as indices in `FINDINGS`.

    In a false negative every replaced word occurs in the caption or in one of the others of the image. Words are
    compared as a whole. The released code does not reliably remove any of these sentences (decision 0017).

    sentences: (C, L). owners: (C,) rows in captions: (M, L). siblings: (M, S, I) ids of the other captions of each
    one's image, 0 where padded. continues: (V,) bool, True for a piece that belongs to the word before it.
    """
    is_changed = sentences != captions[owners]
    is_judged = is_changed.any(dim=1)
    findings = torch.where(is_judged, FINDINGS.index("false_negative"), FINDINGS.index("identical"))
    if len(sentences) == 0:
        return findings
    is_repeated = _repeated(sentences, owners)
    keys, is_end, is_replaced = _words(sentences, continues, is_changed)
    sentence, place = (is_replaced & is_end & (is_judged & ~is_repeated)[:, None]).nonzero(as_tuple=True)
    known = torch.cat([_known_words(captions, continues), _known_words(siblings, continues).flatten(1)], dim=1)
    is_new = (keys[sentence, place][:, None] != known[owners[sentence]]).all(dim=1)
    findings[is_judged & is_repeated] = FINDINGS.index("duplicate")
    findings[sentence[is_new]] = FINDINGS.index("negative")
    return findings


def _repeated(sentences: Tensor, owners: Tensor) -> Tensor:
    """(C,) bool, True where an earlier sentence of the same caption is equal."""
    owned = torch.cat((owners[:, None], sentences), dim=1)
    _, group = torch.unique(owned, dim=0, return_inverse=True)
    places = torch.arange(len(sentences), device=sentences.device)
    first = torch.full_like(places, len(places)).scatter_reduce(0, group, places, "amin")
    return first[group] < places


def _words(ids: Tensor, continues: Tensor, marks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of the word of each id, up to it: a number made of its pieces, (..., L) int64; whether it ends here; whether one
    of its ids is marked. ids: (..., L); marks: (..., L) bool."""
    is_inner = continues[ids]
    is_inner[..., :1] = False
    numbers, marked = [ids[..., 0]], [marks[..., 0]]
    for place in range(1, ids.shape[-1]):
        inner = is_inner[..., place]
        numbers.append(torch.where(inner, numbers[-1] * _FACTOR, 0) + ids[..., place])
        marked.append(marks[..., place] | (inner & marked[-1]))
    is_end = torch.ones_like(is_inner)
    is_end[..., :-1] = ~is_inner[..., 1:]
    return torch.stack(numbers, dim=-1), is_end, torch.stack(marked, dim=-1)


def _known_words(captions: Tensor, continues: Tensor) -> Tensor:
    """(..., L) numbers of the words of captions, `_NO_WORD` where none ends."""
    keys, is_end, _ = _words(captions, continues, torch.zeros_like(captions, dtype=torch.bool))
    return keys.masked_fill(~is_end, _NO_WORD)


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


_NEGATIVE = FINDINGS.index("negative")


@dataclass(frozen=True)
class MaskedCopies:
    """Copies in which at least one place is chosen. captions: B of them, masked. owners: (B,) the caption of each.
    is_chosen: (B, L) bool, the places to guess. words: (T,) ids that stand there, copy after copy."""

    captions: CaptionInputs
    owners: Tensor
    is_chosen: Tensor
    words: Tensor

    @property
    def owners_of_places(self) -> Tensor:
        """(T,) the caption of each chosen place."""
        return self.owners.repeat_interleave(self.is_chosen.sum(dim=1))


@dataclass(frozen=True)
class Sentences:
    """C synthetic sentences, each as long as its caption.

    tokens: (C, L), padded as the captions. owners: (C,) the caption each was made from. is_masked: (C, L) bool, places
    that were filled in. findings: (C,) places in `FINDINGS`.
    """

    tokens: Tensor
    owners: Tensor
    is_masked: Tensor
    findings: Tensor

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: Tensor) -> Sentences:
        """Some of them; rows: numbers or bool."""
        return Sentences(self.tokens[rows], self.owners[rows], self.is_masked[rows], self.findings[rows])

    def negatives(self) -> Sentences:
        """Sentences that pass the filter."""
        return self[self.findings == _NEGATIVE]


def mask_phrases(captions: CaptionInputs, ids: CaptionIds, *, rate: float, copies: int) -> MaskedCopies:
    """`copies` masked copies of every caption; copies of a caption without maskable ids are left out."""
    tokens = captions.tokens
    chosen = choose_phrases(ids.phrases(captions), rate=rate, copies=copies)
    masked = mask_captions(tokens, chosen, mask=ids.mask(), ordinary=ids.ordinary(tokens.device))
    copy, owners = chosen.any(dim=2).nonzero(as_tuple=True)
    is_chosen = chosen[copy, owners]
    made = CaptionInputs(masked.tokens[copy, owners], captions.lengths[owners])
    return MaskedCopies(made, owners, is_chosen, tokens[owners][is_chosen])


@torch.no_grad()
def write_sentences(
    copies: MaskedCopies, logits: Tensor, captions: CaptionInputs, ids: CaptionIds, *, temperature: float, refills: int
) -> Sentences:
    """Every copy filled in `refills` times by ordinary words, with the filter's verdict on each sentence.

    logits: (T, V) of the chosen places. captions: the originals of the copies; without `siblings` the filter knows no
    other caption of the image.
    """
    is_special = torch.ones(logits.shape[1], dtype=torch.bool, device=logits.device)
    is_special[ids.ordinary(logits.device)] = False
    among = logits.detach().masked_fill(is_special, float("-inf"))
    tokens = refill(among, captions.tokens[copies.owners], copies.is_chosen, temperature=temperature, refills=refills)
    tokens, owners = tokens.flatten(0, 1), copies.owners.repeat(refills)
    siblings = captions.siblings
    if siblings is None:
        siblings = captions.tokens.new_zeros(len(captions.tokens), 0, 1)
    findings = judge_all(tokens, owners, captions.tokens, siblings, ids.continues(tokens.device))
    return Sentences(tokens, owners, copies.is_chosen.repeat(refills, 1), findings)
