"""The generator of TAGS-DC: captions with phrases masked, and the sentences made by refilling them (Section 2.1).

Random numbers come from torch's global generator, which in a training has the trial's state. Letters of shapes: M
captions, L ids, B masked copies, T masked places of all of them, V words, C sentences.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vsetune.networks.inputs import CaptionInputs
from vsetune.networks.tags.caption_ids import CaptionIds
from vsetune.networks.tags.refilling import FINDINGS, judge_all, refill
from vsetune.networks.tags.word_masking import choose_phrases, mask_captions

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
