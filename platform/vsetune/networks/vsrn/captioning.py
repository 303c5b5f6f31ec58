"""Generates the caption of an image from its regions, as a second training task (VSRN; Li et al. 2019, section 3.4).

Letters of shapes: N images, M captions, R regions, D dimensions, H hidden units, T steps.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from vsetune.networks.network_base import at_least_float32, word_mask
from vsetune.networks.parts.network_devices import beside
from vsetune.networks.parts.packing import pack, unpack
from vsetune.networks.parts.real_parts import RealParts
from vsetune.networks.parts.recurrence import run_gru
from vsetune.networks.vsrn.spec import VsrnSpec


class CaptionGenerator(nn.Module):
    """GRU over regions, GRU over words with attention to the states of the first; learns by teacher forcing."""

    def __init__(self, spec: VsrnSpec, *, vocabulary_size: int) -> None:
        super().__init__()
        size = spec.captioning_size
        self._longest = spec.captioning_words
        self.dropout = nn.Dropout(spec.captioning_dropout)
        self.region_map = nn.Linear(spec.embedding_size, size)
        nn.init.xavier_normal_(self.region_map.weight)
        self.encoder = nn.GRU(size, size, batch_first=True)
        self.words = nn.Embedding(vocabulary_size, spec.word_size)
        self.attention_map = nn.Linear(2 * size, size)
        self.attention_score = nn.Linear(size, 1, bias=False)
        self.decoder = nn.GRUCell(spec.word_size + size, size)
        self.output = nn.Linear(size, vocabulary_size)
        nn.init.xavier_normal_(self.output.weight)

    def forward(self, regions: Tensor, counts: Tensor, tokens: Tensor, lengths: Tensor, caption_rows: Tensor) -> Tensor:
        """Scalar: minus log probability of all words, summed over a caption, mean over captions.

        regions: (N, R, D); counts: (N,) real regions, on the host. tokens: (M, L), lengths: (M,), on the host.
        caption_rows: (M,) row in `regions` of each caption's image. Each id predicts the next; the last one predicts
        the padding id 0.
        """
        tokens, steps = self._cut(tokens, lengths)
        states = self._states(regions, counts, tokens[:, :-1], caption_rows)
        counted = RealParts.of_lengths(steps, states.shape[1], states)
        logits = at_least_float32(self.output(counted.rows(states)))
        return functional.cross_entropy(logits, counted.rows(tokens[:, 1:]), reduction="sum") / len(tokens)

    def _cut(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """(M, T + 1) ids, 0 behind the end, and (M,) predictions of each caption, on the host; T is the largest of
        these.

        A caption that is too long loses words before its last id. As in the reference, the step behind the end counts
        unless the caption fills all steps.
        """
        kept = lengths.clamp(max=self._longest)
        longest = min(int(kept.max()), self._longest - 1)
        there, kept_there = beside(torch.stack((lengths, kept)), tokens)[..., None]
        last = tokens.gather(1, there - 1)
        positions = torch.arange(longest + 1, device=tokens.device)
        ids = functional.pad(tokens, (0, 1))[:, : longest + 1]
        ids = torch.where(positions == kept_there - 1, last, ids)
        return ids.masked_fill(positions >= kept_there, 0), kept.clamp(max=longest)

    def _states(self, regions: Tensor, counts: Tensor, tokens: Tensor, caption_rows: Tensor) -> Tensor:
        """(M, T, H) states of the decoder. tokens: (M, T), what it reads at each step."""
        mapped = self.dropout(self.region_map(regions))
        counts = counts.clamp_min(1)
        packed_outputs, state = run_gru(self.encoder, pack(mapped, counts))
        encoded = unpack(packed_outputs, parts=regions.shape[1])
        size = encoded.shape[-1]
        # A [o; h] = A_o o + A_h h, and the first part is the same at every step
        keys = functional.linear(encoded, self.attention_map.weight[:, :size])[caption_rows]
        encoded, state = encoded[caption_rows], state[-1][caption_rows]
        is_padding = ~beside(word_mask(counts, regions.shape[1]), regions)[caption_rows]
        words = self.words(tokens)
        states = []
        for step in range(tokens.shape[1]):
            query = functional.linear(state, self.attention_map.weight[:, size:], self.attention_map.bias)
            scores = self.attention_score((keys + query[:, None]).tanh()).squeeze(-1)
            weights = scores.masked_fill(is_padding, float("-inf")).softmax(dim=1)
            context = (weights[:, None] @ encoded).squeeze(1)
            state = self.decoder(self.dropout(torch.cat((words[:, step], context), dim=1)), state)
            states.append(state)
        return torch.stack(states, dim=1)
