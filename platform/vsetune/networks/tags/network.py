"""TAGS (Fan et al. 2022): one transformer over the words and regions of a pair, to one score and to masked words.

Letters of shapes: N images, R regions, M captions, L words, D width, B pairs, T masked places.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import Network, TrainingItems, at_least_float32, region_mask, word_mask
from vsetune.networks.network_building import register
from vsetune.networks.parts.gradients import hand_derived
from vsetune.networks.parts.network_devices import numbers_at_once
from vsetune.networks.parts.pretrained import Architecture, weights_are_wanted
from vsetune.networks.parts.text_transformer import PieceIds, read_piece_ids
from vsetune.networks.tags.bert_start import BertStart
from vsetune.networks.tags.few_pairs import scores_of_few
from vsetune.networks.tags.joint_encoder import EncoderShape, JointEncoder
from vsetune.networks.tags.matching_heads import MatchingHead, WordHead
from vsetune.networks.tags.sentence_terms import masked_word_loss
from vsetune.networks.tags.spec import INNER, TagsSpec
from vsetune.networks.tags.token_inputs import TokenInputs
from vsetune.networks.tags.word_masking import choose_phrases, mask_captions, words_as_phrases

# of the widest layer of a block of pairs: 8 MiB of float32 on a CPU, 512 MiB on a GPU
_NUMBERS_PER_BLOCK_CPU, _NUMBERS_PER_BLOCK = 2**21, 2**27

_MOST_KEPT = 2**29
"""Numbers (2 GiB of float32) kept for the backward pass; what is above is computed twice."""

_KEPT_PER_TOKEN = 10 + 3 * INNER
"""Numbers that a layer keeps for the backward pass, per token, in widths of a token."""

_LONGEST = 512
"""Ids of a caption that a network without a text model reads."""

_PADDING, _MASK, _FIRST_WORD = 0, 4, 5
"""Ids of every vocabulary: padding, mask, the first word that is nothing special."""

_OfPairs = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Vectors of regions and of words, (B,) rows of both -> numbers of these pairs."""


@register(TagsSpec)
class Tags(Network):
    """s = sigmoid(ITM(first state of the transformer over words and regions)).

    `encode_images` and `encode_captions` give what enters the transformer; `similarity` runs it for every pair.
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
        self._pieces: PieceIds | None = None
        if start is not None and weights_are_wanted():
            self._piece_ids(torch.device("cpu"))  # refuses a model without its tokeniser before anything trains
        # last, so that the parameters above are the same with and without it
        has_words = spec.mlm_weight > 0
        self.masked_words = WordHead(shape.size, vocabulary_size, epsilon=shape.epsilon) if has_words else None

    def encode_images(self, images: ImageInputs) -> Encoded:
        """Regions as they enter the transformer. DataError without boxes, unless the regions are a square grid."""
        mask = region_mask(images.counts, images.features.shape[1])
        return Encoded(at_least_float32(self.inputs.of_regions(images.features, images.boxes)), mask.sum(dim=1))

    def encode_captions(self, captions: CaptionInputs) -> Encoded:
        """Words as they enter the transformer. DataError for a caption that is longer than it reads."""
        return Encoded(at_least_float32(self.inputs.of_words(captions.tokens)), captions.lengths)

    def similarity(self, images: Encoded, captions: Encoded) -> Tensor:
        """(N, M) scores in (0, 1), in blocks of pairs whose captions have similar lengths.

        What training keeps has a bound of 2 GiB, beyond which a block is computed twice. Without dropout a CPU carries
        back only the pairs that have a gradient.
        """
        assert captions.lengths is not None
        columns = captions.lengths.argsort(descending=True, stable=True).repeat_interleave(len(images))
        rows = torch.arange(len(images), device=images.device).repeat(len(captions))
        scores = self.scores_of_pairs(images, captions, rows, columns)
        places = rows * len(captions) + columns
        return scores.new_zeros(len(images) * len(captions)).index_copy(0, places, scores).view(len(images), -1)

    def scores_of_pairs(self, images: Encoded, captions: Encoded, rows: Tensor, columns: Tensor) -> Tensor:
        """(B,) scores of the images rows (B,) with the captions columns (B,)."""
        masks = _masks_of(images, captions)

        def scores_of(regions: Tensor, words: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
            sequence, is_real = _joined((regions, words), masks, rows, columns)
            states = self.encoder(sequence, is_real, rows.new_zeros(len(rows), 1))
            return at_least_float32(self.matching(states)).sigmoid().squeeze(1)

        is_random = self.training and self._spec.dropout > 0
        if torch.is_grad_enabled() and not is_random and hand_derived(images.vectors):
            parameters = [*self.encoder.parameters(), *self.matching.parameters()]
            return scores_of_few(
                scores_of, images.vectors, captions.vectors, (rows, columns), parameters,
                block=self._pairs_of_a_block(images, captions),
            )
        return torch.cat(self._in_blocks(scores_of, images, captions, (rows, columns)))

    def auxiliary_losses(self, items: TrainingItems) -> dict[str, Tensor]:
        """`mlm`, unless its weight is 0."""
        if self.masked_words is None:
            return {}
        return {"mlm": self._spec.mlm_weight * self.masked_word_loss(items.images, items.words, items.caption_rows)}

    def masked_word_loss(self, images: Encoded, captions: CaptionInputs, caption_rows: Tensor) -> Tensor:
        """Scalar, L_MLM: words masked in copies of each caption are guessed from the other words and the image.

        images: of the batch, encoded. caption_rows: (M,) row of each caption's image. Without phrases of the captions a
        word is a phrase, all its pieces together. Draws from torch's global generator.
        """
        chosen = choose_phrases(
            self._words_to_mask(captions), rate=self._spec.mask_rate, copies=self._spec.masked_copies
        )
        mask, ordinary = self._mask_and_words(captions.tokens.device)
        masked = mask_captions(captions.tokens, chosen, mask=mask, ordinary=ordinary)
        copy, caption = chosen.any(dim=2).nonzero(as_tuple=True)
        is_chosen = chosen[copy, caption]
        inputs = CaptionInputs(masked.tokens[copy, caption], captions.lengths[caption])
        logits = self.word_logits(images, self.encode_captions(inputs), caption_rows[caption], is_chosen)
        place = is_chosen.nonzero()
        return masked_word_loss(logits, captions.tokens[caption][is_chosen], caption[place[:, 0]])

    def word_logits(self, images: Encoded, captions: Encoded, rows: Tensor, is_read: Tensor) -> Tensor:
        """(T, V) logits of every word at the places to read, caption after caption.

        captions: B of them, masked; rows: (B,) row of each one's image. is_read: (B, L) bool, at least one per caption.
        """
        assert self.masked_words is not None
        if len(rows) == 0:
            return images.vectors.new_zeros(0, self._vocabulary_size)
        masks = _masks_of(images, captions)
        most = int(is_read.sum(dim=1).max())
        places = is_read.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :most]
        is_place = is_read.gather(1, places)
        places = places.masked_fill(~is_place, 0)

        def states_of(regions: Tensor, words: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
            sequence, is_real = _joined((regions, words), masks, rows, columns)
            states: Tensor = self.encoder(sequence, is_real, places[columns])
            return states[is_place[columns]]

        columns = torch.arange(len(rows), device=rows.device)
        states = torch.cat(self._in_blocks(states_of, images, captions, (rows, columns)))
        return at_least_float32(self.masked_words(states, self.inputs.words.weight))

    def _in_blocks(
        self, compute: _OfPairs, images: Encoded, captions: Encoded, pairs: tuple[Tensor, Tensor]
    ) -> list[Tensor]:
        """What compute gives for every block of pairs; where too much would be kept, blocks are computed twice."""
        tokens = images.vectors.shape[1] + captions.vectors.shape[1]
        kept = len(pairs[0]) * self._spec.layers * tokens * self.embedding_size * _KEPT_PER_TOKEN
        block = self._pairs_of_a_block(images, captions)
        found = []
        for rows, columns in zip(*(torch.split(side, block) for side in pairs), strict=True):
            inputs = (images.vectors, captions.vectors, rows, columns)
            if torch.is_grad_enabled() and kept > _MOST_KEPT:
                found.append(checkpoint(compute, *inputs, use_reentrant=False))
            else:
                found.append(compute(*inputs))
        return found

    def _pairs_of_a_block(self, images: Encoded, captions: Encoded) -> int:
        tokens = images.vectors.shape[1] + captions.vectors.shape[1]
        numbers = numbers_at_once(images.vectors, cpu=_NUMBERS_PER_BLOCK_CPU, gpu=_NUMBERS_PER_BLOCK)
        return max(1, numbers // (tokens * self.embedding_size * INNER))

    def _words_to_mask(self, captions: CaptionInputs) -> Tensor:
        """(M, L, L) bool phrases, one for each word of a caption; see `words_as_phrases`."""
        tokens = captions.tokens
        is_real = word_mask(captions.lengths, tokens.shape[1])
        places = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        if self._spec.text_model is None:
            return words_as_phrases(places, is_real & (tokens >= _FIRST_WORD))
        pieces = self._piece_ids(tokens.device)
        may_change = is_real & ~torch.isin(tokens, torch.tensor(pieces.fixed, device=tokens.device))
        starts = torch.where(pieces.continues[tokens] & may_change, 0, places).cummax(dim=1).values
        return words_as_phrases(starts, may_change)

    def _mask_and_words(self, device: torch.device) -> tuple[int, Tensor]:
        """Id of the mask, and the ids that may stand for a word."""
        ids = torch.arange(self._vocabulary_size, device=device)
        if self._spec.text_model is None:
            return _MASK, ids[min(_FIRST_WORD, len(ids) - 1) :]
        pieces = self._piece_ids(device)
        special = torch.tensor([_PADDING, pieces.mask, *pieces.fixed], device=device)
        return pieces.mask, ids[~torch.isin(ids, special)]

    def _piece_ids(self, device: torch.device) -> PieceIds:
        """What the tokeniser knows of ids; read now if the network was built without pre-trained weights."""
        model = self._spec.reads.word_pieces
        assert model is not None
        found = self._pieces or read_piece_ids(model, self._vocabulary_size)
        self._pieces = PieceIds(found.mask, found.fixed, found.continues.to(device))
        return self._pieces


def _masks_of(images: Encoded, captions: Encoded) -> tuple[Tensor, Tensor]:
    """(N, R) and (M, L) bool, True for real regions and words."""
    assert images.lengths is not None
    assert captions.lengths is not None
    regions, words = images.vectors.shape[1], captions.vectors.shape[1]
    return word_mask(images.lengths, regions), word_mask(captions.lengths, words)


def _joined(
    vectors: tuple[Tensor, Tensor], masks: tuple[Tensor, Tensor], rows: Tensor, columns: Tensor
) -> tuple[Tensor, Tensor]:
    """(B, P, D) words and then regions of each pair, and (B, P) bool, which are real; words up to the longest caption.

    vectors: (N, R, D) of regions, (M, L, D) of words; masks: of both.
    """
    is_word = masks[1][columns]
    longest = int(is_word.sum(dim=1).max())
    # the backward pass of index_select adds rows, that of indexing adds numbers one by one
    words, regions = vectors[1][:, :longest].index_select(0, columns), vectors[0].index_select(0, rows)
    sequence = torch.cat((words, regions), dim=1)
    return sequence, torch.cat((is_word[:, :longest], masks[0][rows]), dim=1)
