"""The network word_cnn: v = n(W_v mean region + b), t = n(W_t [largest answer of each filter] + c)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import Network, region_mask, unit_length, word_mask
from vsetune.networks.network_building import register
from vsetune.networks.parts.layers import xavier_linear
from vsetune.networks.parts.polysemous import mean_of_items
from vsetune.networks.parts.recurrence import word_embedding

from .spec import WordCnnSpec


@register(WordCnnSpec)
class WordCnn(Network):
    """A window starts at every word of a caption; beyond the last word it reads zeros."""

    def __init__(self, spec: WordCnnSpec, *, width: int, vocabulary_size: int) -> None:
        super().__init__(spec)
        self.image_map = xavier_linear(width, spec.embedding_size)
        self.words = word_embedding(vocabulary_size, spec.word_size)
        windows = range(1, spec.longest_window + 1)
        self.windows = nn.ModuleList(nn.Conv1d(spec.word_size, spec.filters, length) for length in windows)
        self.caption_map = xavier_linear(spec.filters * len(windows), spec.embedding_size)

    def encode_images(self, images: ImageInputs) -> Encoded:
        """(n, D)."""
        is_region = region_mask(images.counts, images.features.shape[1])
        return Encoded(unit_length(self.image_map(mean_of_items(images.features, is_region))))

    def encode_captions(self, captions: CaptionInputs) -> Encoded:
        """(m, D)."""
        is_word = word_mask(captions.lengths, captions.tokens.shape[1])
        words = self.words(captions.tokens).masked_fill(~is_word[..., None], 0.0).mT
        largest = [self._largest(window, words, is_word) for window in self.windows]
        return Encoded(unit_length(self.caption_map(torch.cat(largest, dim=1))))

    def _largest(self, window: nn.Module, words: Tensor, is_word: Tensor) -> Tensor:
        """(m, filters) of words (m, word_size, L): over the windows that start at a real word."""
        assert isinstance(window, nn.Conv1d)
        answers = window(pad(words, (0, window.kernel_size[0] - 1))).relu()
        return answers.masked_fill(~is_word[:, None], 0.0).amax(dim=2)
