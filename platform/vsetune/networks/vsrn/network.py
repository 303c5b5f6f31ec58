"""VSRN (Li et al. 2019): regions reason over a graph and are read in order by a GRU; captions are generated."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from vsetune.config.component_specs import NetworkSpec
from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import Network, TrainingItems, at_least_float32, unit_length, word_mask
from vsetune.networks.network_building import register
from vsetune.networks.parts.batch_normalization import SharedBatchNorm, normalize_rows
from vsetune.networks.parts.layers import xavier_linear
from vsetune.networks.parts.network_devices import beside, on_host
from vsetune.networks.parts.packing import RealParts, pack, unpack
from vsetune.networks.parts.recurrence import embed_words, last_state, run_gru, word_embedding
from vsetune.networks.parts.region_graph import RegionGraph, normalized_regions
from vsetune.networks.vsrn.spec import VsrnSpec

_BLOCKS = 4


@dataclass(frozen=True)
class ReasonedImages(Encoded):
    """Embeddings with the regions they come from, which the caption generator reads; only made in training.

    regions: (N, R, D) after the graph, zero where padded. counts: (N,) real regions, and host_counts on the CPU.
    """

    regions: Tensor | None = None
    counts: Tensor | None = None
    host_counts: Tensor | None = None


@register(VsrnSpec)
class Vsrn(Network):
    """v = n(last state of a GRU over reasoned regions), t = n(last state of a GRU over words).

    The order of regions matters: of detections it is the order of the data set, of grid cells row by row.
    """

    def __init__(self, spec: VsrnSpec, *, width: int, vocabulary_size: int) -> None:
        super().__init__(spec)
        size = spec.embedding_size
        self._spec = spec
        self.region_map = xavier_linear(width, size)
        self.graph = nn.ModuleList(RegionGraph(size, variant=spec.graph) for _ in range(_BLOCKS))
        self.region_gru = nn.GRU(size, size, batch_first=True)
        self.image_norm = SharedBatchNorm(size) if spec.mode == "flickr30k" else None
        self.words = word_embedding(vocabulary_size, spec.word_size)
        self.word_gru = nn.GRU(spec.word_size, size, batch_first=True)
        # last, so that the parameters above are the same with and without it
        has_generator = spec.captioning_weight > 0
        self.generator = CaptionGenerator(spec, vocabulary_size=vocabulary_size) if has_generator else None

    def encode_images(self, images: ImageInputs) -> Encoded:
        """Embeddings; in training with the regions that `captioning_loss` needs."""
        counts = images.counts.clamp_min(1)
        regions = self.reasoned(images)
        known = images.counts_on_host.clamp_min(1)
        state = last_state(self.region_gru, pack(regions, known))
        if self.image_norm is not None:
            state = normalize_rows(self.image_norm, state)
        if self.training and self.generator is not None:
            return ReasonedImages(unit_length(state), regions=regions, counts=counts, host_counts=known)
        return Encoded(unit_length(state))

    def encode_captions(self, captions: CaptionInputs) -> Encoded:
        words = embed_words(self.words, captions.tokens, captions.lengths_on_host)
        return Encoded(unit_length(last_state(self.word_gru, words)))

    def begin_phase(self, spec: NetworkSpec) -> None:
        assert isinstance(spec, VsrnSpec)
        self._spec = spec

    def auxiliary_losses(self, items: TrainingItems) -> dict[str, Tensor]:
        """`captioning`, unless its weight is 0."""
        if self.generator is None or self._spec.captioning_weight == 0:
            return {}
        return {"captioning": self.captioning_loss(items.images, items.words, items.caption_rows)}

    def captioning_loss(self, images: Encoded, captions: CaptionInputs, caption_rows: Tensor) -> Tensor:
        """Scalar to add to the retrieval loss: `captioning_weight` times the loss of generating each caption.

        images: output of `encode_images` in training. caption_rows: (M,) row of each caption's image. The reference
        adds a mean over captions to a hinge summed over the batch, weight 1. Unlike it, parameters are registered once:
        its Adam takes two steps per batch on those of the generator.
        """
        if self.generator is None:
            return images.vectors.new_zeros(())
        if not isinstance(images, ReasonedImages) or images.regions is None or images.counts is None:
            raise TypeError("VSRN's captioning_loss needs images encoded in training mode")
        items = images.regions, on_host(images.counts, images.host_counts), captions.tokens, captions.lengths_on_host
        loss: Tensor = self.generator(*items, caption_rows)
        return self._spec.captioning_weight * loss

    def reasoned(self, images: ImageInputs) -> Tensor:
        """(N, R, D) regions behind the graph, normalised, zero where padded."""
        real = RealParts.of_lengths(images.counts_on_host.clamp_min(1), images.features.shape[1], images.features)
        regions = at_least_float32(self.region_map(images.features)).masked_fill(~real.mask[..., None], 0.0)
        if self._spec.mode == "coco":
            regions = normalized_regions(regions, self._spec.region_normalization)
        for block in self.graph:
            regions = block(regions, real)
        return normalized_regions(regions, self._spec.region_normalization)


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
