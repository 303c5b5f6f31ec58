"""Sentences of TAGS for display: those it writes, and words found wrong (WoD) and corrected (WoC).

Letters of shapes: C sentences, L ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs
from vsetune.networks.network_base import TrainingItems, at_least_float32
from vsetune.networks.sentence_writing import SentenceWriting, Verdict, WordFindings, WrittenSentences
from vsetune.networks.tags.generator import FINDINGS, Finding, Sentences, best_sentences, mask_phrases, write_sentences
from vsetune.networks.tags.spec import TagsSpec

if TYPE_CHECKING:
    from vsetune.networks.tags.network import Tags

_VERDICTS: dict[Finding, Verdict] = {
    "negative": "not_among_best", "identical": "identical", "duplicate": "duplicate",
    "false_negative": "false_negative",
}
"""Before the best of the negatives are chosen."""


class TagsWriting(SentenceWriting):
    """spec: of the network."""

    def __init__(self, network: Tags, spec: TagsSpec) -> None:
        self._network, self._spec = network, spec
        self.about = (
            f"{spec.masked_copies} copies of a caption are masked and each is refilled {spec.refills} times, at "
            f"temperature {spec.refill_temperature:g}; of what the filter lets through, the {spec.synthetic_negatives} "
            "with the highest scores train."
        )
        self.lacks = _lacks(network, spec)

    @torch.no_grad()
    def write(self, image: Encoded, caption: CaptionInputs) -> WrittenSentences | None:
        """See `SentenceWriting`; None without the head that guesses masked words."""
        network, spec = self._network, self._spec
        if network.masked_words is None:
            return None
        copies = mask_phrases(caption, network.ids, rate=spec.mask_rate, copies=spec.masked_copies)
        if len(copies.owners) == 0:  # nothing in it may be masked
            nothing = caption.tokens[:0]
            return WrittenSentences(nothing, nothing, nothing.bool(), [], image.vectors.new_zeros(0))
        rows = torch.zeros_like(copies.owners)
        logits = network.word_logits(image, network.encode_captions(copies.captions), rows, copies.is_chosen)
        sentences = write_sentences(
            copies, logits, caption, network.ids, temperature=spec.refill_temperature, refills=spec.refills
        )
        scores = network.sentence_scores(_items(network, image, caption), sentences)
        masked = copies.captions.tokens.repeat(spec.refills, 1)
        return WrittenSentences(
            sentences.tokens, masked, sentences.is_masked, self._verdicts(sentences, scores), scores
        )

    def _verdicts(self, sentences: Sentences, scores: Tensor) -> list[Verdict]:
        verdicts = [_VERDICTS[FINDINGS[number]] for number in sentences.findings.tolist()]
        (negatives,) = (sentences.findings == FINDINGS.index("negative")).nonzero(as_tuple=True)
        best = best_sentences(scores[negatives], sentences.owners[negatives], self._spec.synthetic_negatives)
        for place in negatives[best].tolist():
            verdicts[place] = "kept"
        return verdicts

    @torch.no_grad()
    def judge_words(self, image: Encoded, sentences: CaptionInputs) -> WordFindings:
        """See `SentenceWriting`."""
        network, tokens = self._network, sentences.tokens
        is_judged = network.ids.may_change(sentences)
        is_read = is_judged.clone()
        is_read[:, 0] = True  # whose state is scored
        rows = torch.zeros(len(tokens), dtype=torch.int64, device=tokens.device)
        states = network.word_states(image, network.encode_captions(sentences), rows, is_read)
        of_words = is_judged[is_read]
        scores = at_least_float32(network.matching(states[is_read.nonzero()[:, 1] == 0])).sigmoid()
        unchanged = mended = certainty = present = None
        if network.replaced_words is not None:
            found = network.replaced_words(states[of_words]).softmax(dim=1)[:, 1]
            unchanged = _placed(found, is_judged)
        if network.corrected_words is not None:
            logits = network.corrected_words(states[of_words], network.inputs.words.weight)
            ordinary = network.ids.ordinary(logits.device)
            chances = torch.zeros_like(logits).index_copy(1, ordinary, logits[:, ordinary].softmax(dim=1))
            best = chances.max(dim=1)
            mended = torch.where(is_judged, _placed(best.indices, is_judged), tokens)
            certainty = _placed(best.values, is_judged)
            present = _placed(chances.gather(1, tokens[is_judged][:, None])[:, 0], is_judged)
        return WordFindings(scores, is_judged, unchanged, mended, certainty, present)


def _lacks(network: Tags, spec: TagsSpec) -> list[str]:
    lines = []
    if network.masked_words is None:
        lines.append(
            "It writes no sentences: it was trained without the head that guesses masked words (mlm_weight 0 and no "
            "weight of a loss of synthetic sentences)."
        )
    elif spec.mlm_weight == 0:
        lines.append(
            "Its training did not teach the head that writes to guess (mlm_weight 0): unless it started from weights "
            "with such a head, words are drawn at random."
        )
    if network.replaced_words is None:
        lines.append("It has no head that finds replaced words (wod_weight 0).")
    if network.corrected_words is None:
        lines.append("It has no head that mends them (woc_weight 0).")
    return lines


def _items(network: Tags, image: Encoded, caption: CaptionInputs) -> TrainingItems:
    """One image with one caption of it."""
    row = caption.lengths.new_zeros(1)
    negatives = torch.zeros(1, 1, dtype=torch.bool, device=row.device)
    return TrainingItems(image, network.encode_captions(caption), caption, row, negatives)


def _placed(values: Tensor, places: Tensor) -> Tensor:
    """(C, L), the values where `places` is True, row after row; 0 elsewhere."""
    return values.new_zeros(places.shape).masked_scatter(places, values)
