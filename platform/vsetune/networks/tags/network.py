"""TAGS (Fan et al. 2022): one transformer over the words and regions of a pair, to one score and to masked words.

Letters of shapes: N images, R regions, M captions, L words, D width, B pairs, T masked places, C sentences.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from vsetune.config.component_specs import NetworkSpec
from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import Network, TrainingItems, at_least_float32, evaluating, region_mask
from vsetune.networks.network_building import register
from vsetune.networks.parts.cpu.pairs import scores_of_few
from vsetune.networks.parts.network_devices import hand_derived
from vsetune.networks.parts.text_transformer import Architecture, weights_are_wanted
from vsetune.networks.sentence_writing import SentenceWriting, Verdict, WrittenSentences
from vsetune.networks.tags.bert_start import BertStart
from vsetune.networks.tags.generator import (
    FINDINGS,
    Finding,
    MaskedCopies,
    Sentences,
    best_sentences,
    mask_phrases,
    write_sentences,
)
from vsetune.networks.tags.joint_encoder import EncoderShape, JointEncoder, TokenInputs, bert_linear
from vsetune.networks.tags.pair_blocks import PairBlocks
from vsetune.networks.tags.sentence_terms import blocks_of, masked_word_loss, synthetic_triplets, word_discrimination
from vsetune.networks.tags.spec import INNER, TagsSpec
from vsetune.networks.tags.word_masking import CaptionIds


class MatchingHead(nn.Module):
    """logit = w'(tanh(W h)), h the state of the first word; ITM of the paper before its sigmoid."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.pooled = bert_linear(size, size, size=size)
        self.score = bert_linear(size, 1, size=size)

    def forward(self, states: Tensor) -> Tensor:
        """(...). states: (..., D)."""
        out: Tensor = self.score(self.pooled(states).tanh()).squeeze(-1)
        return out


class WordHead(nn.Module):
    """Logits of every word: LN(gelu(W h)) times the word embeddings, which are the network's own, plus a bias."""

    def __init__(self, size: int, vocabulary_size: int, *, epsilon: float) -> None:
        super().__init__()
        self.transform = bert_linear(size, size, size=size)
        self.norm = nn.LayerNorm(size, eps=epsilon)
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))

    def forward(self, states: Tensor, words: Tensor) -> Tensor:
        """(..., V). states: (..., D); words: (V, D), weights of the embedding."""
        hidden = self.norm(functional.gelu(self.transform(states)))
        return functional.linear(hidden, words, self.bias)


_LONGEST = 512
"""Ids of a caption that a network without a text model reads."""


@register(TagsSpec)
class Tags(Network):
    """s = sigmoid(ITM(first state of the transformer over words and regions)).

    `encode_images` and `encode_captions` give the inputs of the transformer; `similarity` runs it for every pair.
    """

    def __init__(self, spec: TagsSpec, *, width: int, vocabulary_size: int) -> None:
        super().__init__(spec)
        self._spec = spec
        start = BertStart(spec) if spec.reads.word_pieces is not None else None
        if start is None:
            shape = EncoderShape(
                size=spec.embedding_size, layers=spec.layers, heads=spec.heads, inner=INNER * spec.embedding_size,
                dropout=spec.dropout,
            )
            longest = _LONGEST
        else:
            shape, longest, vocabulary_size = start.shape, start.longest, start.vocabulary_size
        self._vocabulary_size = vocabulary_size
        self.inputs = TokenInputs(shape, width=width, vocabulary_size=vocabulary_size, longest=longest)
        self.encoder = JointEncoder(shape)
        self.matching = MatchingHead(shape.size)
        if start is not None:
            start.copy_into(self.inputs, self.encoder)
        self.architecture: Architecture = start.architecture if start is not None else {}
        self.ids = CaptionIds(spec.reads.word_pieces, vocabulary_size)
        if weights_are_wanted():
            self.ids.require_tokenizer()
        # last, so that the parameters above are the same with and without them
        word_head = partial(WordHead, shape.size, vocabulary_size, epsilon=shape.epsilon)
        self.masked_words = word_head() if spec.mlm_weight > 0 or spec.writes_sentences else None
        self.replaced_words = bert_linear(shape.size, 2, size=shape.size) if spec.wod_weight > 0 else None
        self.corrected_words = word_head() if spec.woc_weight > 0 else None
        self._copy_word_head()

    def begin_phase(self, spec: NetworkSpec) -> None:
        """Set the weights of its own losses; where L_WoC begins, its head starts as a copy of the masked-word head."""
        assert isinstance(spec, TagsSpec)
        begins = self._spec.woc_weight == 0 < spec.woc_weight
        self._spec = spec
        if begins:
            self._copy_word_head()

    def encode_images(self, images: ImageInputs) -> Encoded:
        """Regions as inputs of the transformer. DataError without boxes, unless the regions are a square grid."""
        mask = region_mask(images.counts, images.features.shape[1])
        return Encoded(at_least_float32(self.inputs.of_regions(images.features, images.boxes)), mask.sum(dim=1))

    def encode_captions(self, captions: CaptionInputs) -> Encoded:
        """Words as inputs of the transformer. DataError for a caption that is longer than it reads."""
        return Encoded(at_least_float32(self.inputs.of_words(captions.tokens)), captions.lengths)

    def similarity(self, images: Encoded, captions: Encoded) -> Tensor:
        """(N, M) scores in (0, 1), in blocks of pairs whose captions have similar lengths.

        Training stores at most 2 GiB, beyond which a block is computed twice. Without dropout, the backward pass on a
        CPU covers only the pairs that have a gradient.
        """
        assert captions.lengths is not None
        columns = captions.lengths.argsort(descending=True, stable=True).repeat_interleave(len(images))
        rows = torch.arange(len(images), device=images.device).repeat(len(captions))
        scores = self.scores_of_pairs(images, captions, rows, columns)
        places = rows * len(captions) + columns
        return scores.new_zeros(len(images) * len(captions)).index_copy(0, places, scores).view(len(images), -1)

    def scores_of_pairs(self, images: Encoded, captions: Encoded, rows: Tensor, columns: Tensor) -> Tensor:
        """(B,) scores of the images rows (B,) with the captions columns (B,)."""
        pairs = PairBlocks(images, captions, self._spec.layers)

        def scores_of(regions: Tensor, words: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
            sequence, is_real = pairs.joined(regions, words, rows, columns)
            return self._scores(self.encoder(sequence, is_real, rows.new_zeros(len(rows), 1))).squeeze(1)

        if torch.is_grad_enabled() and not self._is_random and hand_derived(images.vectors):
            parameters = [*self.encoder.parameters(), *self.matching.parameters()]
            vectors = images.vectors, captions.vectors
            return scores_of_few(scores_of, *vectors, (rows, columns), parameters, block=pairs.size)
        return pairs.apply(scores_of, rows, columns, vectors=self._prepared(images, captions))

    def word_states(self, images: Encoded, captions: Encoded, rows: Tensor, is_read: Tensor) -> Tensor:
        """(T, D) states behind the last layer at the places to read, caption after caption.

        captions: B of them; rows: (B,) row of each one's image. is_read: (B, L) bool, at least one per caption.
        """
        if len(rows) == 0:
            return images.vectors.new_zeros(0, images.vectors.shape[2])
        assert captions.lengths is not None
        pairs, counts = PairBlocks(images, captions, self._spec.layers), is_read.sum(dim=1)
        most = int(counts.max())
        places = is_read.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :most]
        is_place = is_read.gather(1, places)
        places = places.masked_fill(~is_place, 0)

        def states_of(regions: Tensor, words: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
            sequence, is_real = pairs.joined(regions, words, rows, columns)
            states: Tensor = self.encoder(sequence, is_real, places[columns])
            return states[is_place[columns]]

        order = captions.lengths.argsort(descending=True, stable=True)
        found = pairs.apply(states_of, rows[order], order, vectors=self._prepared(images, captions))
        return found.index_select(0, order.repeat_interleave(counts[order]).argsort(stable=True))

    def word_logits(self, images: Encoded, captions: Encoded, rows: Tensor, is_read: Tensor) -> Tensor:
        """(T, V) logits of every word at the places to read, see `word_states`. captions: masked."""
        assert self.masked_words is not None
        states = self.word_states(images, captions, rows, is_read)
        return at_least_float32(self.masked_words(states, self.inputs.words.weight))

    def sentence_writing(self) -> TagsWriting:
        """Sentences that it writes, and words that it finds wrong and corrects, for people to look at."""
        return TagsWriting(self, self._spec)

    def auxiliary_losses(self, items: TrainingItems) -> dict[str, Tensor]:
        """`mlm`, `istm`, `wod`, `woc`: each unless its weight is 0. Uses torch's global generator."""
        spec = self._spec
        if not (spec.writes_sentences or spec.mlm_weight > 0):
            return {}
        copies = mask_phrases(items.words, self.ids, rate=spec.mask_rate, copies=spec.masked_copies)
        with torch.set_grad_enabled(torch.is_grad_enabled() and spec.mlm_weight > 0):
            rows = items.caption_rows[copies.owners]
            logits = self.word_logits(items.images, self.encode_captions(copies.captions), rows, copies.is_chosen)
        losses = {}
        if spec.mlm_weight > 0:
            losses["mlm"] = spec.mlm_weight * masked_word_loss(logits, copies.words, copies.owners_of_places)
        if spec.writes_sentences:
            losses |= self._sentence_losses(items, self.hardest_sentences(items, copies, logits))
        return losses

    def hardest_sentences(self, items: TrainingItems, copies: MaskedCopies, logits: Tensor) -> Sentences:
        """For every caption the `synthetic_negatives` negatives that score highest with its image, highest first.

        logits: (T, V) of the places that the copies have chosen.
        """
        spec = self._spec
        written = write_sentences(
            copies, logits, items.words, self.ids, temperature=spec.refill_temperature, refills=spec.refills
        ).negatives()
        scores = self.sentence_scores(items, written)
        return written[best_sentences(scores, written.owners, spec.synthetic_negatives)]

    def sentence_scores(self, items: TrainingItems, sentences: Sentences) -> Tensor:
        """(C,) scores of sentences with the images of their captions, in evaluation mode, without gradient."""
        lengths, rows = items.words.lengths[sentences.owners], items.caption_rows[sentences.owners]
        scores = items.images.vectors.new_empty(len(sentences))
        with evaluating(self):
            for block in blocks_of(
                self.inputs, self.encoder, items.images, rows, tokens=sentences.tokens, lengths=lengths
            ):
                first = rows.new_zeros(len(block.sentences), 1)
                states = self.encoder(block.sequence, block.is_real, first)
                scores[block.sentences] = self._scores(states).squeeze(1)
        return scores

    def _sentence_losses(self, items: TrainingItems, pool: Sentences) -> dict[str, Tensor]:
        """The terms of synthetic sentences; these and their captions pass through the transformer once."""
        spec, words, owners = self._spec, items.words, pool.owners
        count = len(words.tokens)
        may_change = self.ids.may_change(words)[owners]
        is_discriminated = may_change & (spec.wod_weight > 0)
        is_corrected = (pool.is_masked if spec.woc_places == "masked" else may_change) & (spec.woc_weight > 0)
        is_read = torch.cat((torch.zeros_like(words.tokens, dtype=torch.bool), is_discriminated | is_corrected))
        is_read[:, 0] = True
        both = CaptionInputs(torch.cat((words.tokens, pool.tokens)), torch.cat((words.lengths, words.lengths[owners])))
        rows = torch.cat((items.caption_rows, items.caption_rows[owners]))
        states = self.word_states(items.images, self.encode_captions(both), rows, is_read)
        sequence, place = is_read.nonzero(as_tuple=True)
        losses = {}
        if spec.istm_weight > 0:
            scores = self._scores(states[place == 0])
            losses["istm"] = spec.istm_weight * synthetic_triplets(
                scores[:count], scores[count:], owners, margin=spec.istm_margin
            )
        is_sentence = sequence >= count
        of_sentences = states[is_sentence], sequence[is_sentence] - count, place[is_sentence]
        if spec.wod_weight > 0:
            losses["wod"] = spec.wod_weight * self._discrimination(of_sentences, pool, words.tokens, is_discriminated)
        if spec.woc_weight > 0:
            losses["woc"] = spec.woc_weight * self._correction(of_sentences, pool, words.tokens, is_corrected)
        return losses

    def _discrimination(
        self, of_sentences: tuple[Tensor, Tensor, Tensor], pool: Sentences, captions: Tensor, is_counted: Tensor
    ) -> Tensor:
        """L_WoD. of_sentences: states (T, D), the sentence and the place of each. is_counted: (C, L) bool."""
        assert self.replaced_words is not None
        states, sentence, place = of_sentences
        is_used = is_counted[sentence, place]
        of_places = at_least_float32(self.replaced_words(states[is_used]))
        logits = of_places.new_zeros(*is_counted.shape, 2).index_put((sentence[is_used], place[is_used]), of_places)
        spec = self._spec
        return word_discrimination(
            logits, pool.tokens == captions[pool.owners], is_counted, pool.owners,
            replaced_weight=spec.wod_replaced_weight, same_weight=spec.wod_same_weight,
        )

    def _correction(
        self, of_sentences: tuple[Tensor, Tensor, Tensor], pool: Sentences, captions: Tensor, is_counted: Tensor
    ) -> Tensor:
        """L_WoC, likewise."""
        assert self.corrected_words is not None
        states, sentence, place = of_sentences
        is_used = is_counted[sentence, place]
        logits = at_least_float32(self.corrected_words(states[is_used], self.inputs.words.weight))
        owners = pool.owners[sentence[is_used]]
        return masked_word_loss(logits, captions[owners, place[is_used]], owners)

    @property
    def _is_random(self) -> bool:
        return self.training and self._spec.dropout > 0

    def _prepared(self, images: Encoded, captions: Encoded) -> tuple[Tensor, Tensor] | None:
        """The results of `JointEncoder.prepared` for both; None with dropout, which acts inside a pair."""
        if self._is_random:
            return None
        return self.encoder.prepared(images.vectors), self.encoder.prepared(captions.vectors)

    def _scores(self, states: Tensor) -> Tensor:
        return at_least_float32(self.matching(states)).sigmoid()

    def _copy_word_head(self) -> None:
        if self.masked_words is not None and self.corrected_words is not None:
            self.corrected_words.load_state_dict(self.masked_words.state_dict())


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
    return lines


def _items(network: Tags, image: Encoded, caption: CaptionInputs) -> TrainingItems:
    """One image with one caption of it."""
    row = caption.lengths.new_zeros(1)
    negatives = torch.zeros(1, 1, dtype=torch.bool, device=row.device)
    return TrainingItems(image, network.encode_captions(caption), caption, row, negatives)
