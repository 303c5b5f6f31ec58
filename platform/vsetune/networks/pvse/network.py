"""PVSE (Song and Soleymani 2019): several embeddings per item, compared by their most similar pair.

    image    g = Dropout(W mean_r x_r + b),            local items: the regions
    caption  g = Dropout(end states of a Bi-GRU),      local items: the word vectors
    z_k = n(LayerNorm(g + r_k)),  k = 1..K             (`polysemous`)
    S_ij = max over the K x K pairs of dot products
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import CaptionInputs, ImageInputs
from vsetune.networks.network_base import Network, at_least_float32, region_mask
from vsetune.networks.network_building import register
from vsetune.networks.parts.polysemous import PolysemousHead, end_states, mean_of_items, unpacked
from vsetune.networks.parts.recurrence import drop_numbers, embed_words, word_embedding
from vsetune.networks.pvse.spec import PvseNetworkSpec


def most_similar_pair(images: Tensor, captions: Tensor) -> Tensor:
    """(n, m): largest of the K x K dot products of images (n, K, D) and captions (m, K, D), float32 or wider.

    The gradient of an entry reaches one pair of embeddings, also on a tie. Stores n K x m K numbers.
    """
    (n, drawn, _), (m, other, _) = images.shape, captions.shape
    with torch.autocast(images.device.type, enabled=False):
        products = at_least_float32(images).flatten(0, 1) @ at_least_float32(captions).flatten(0, 1).T
    return products.view(n, drawn, m, other).max(dim=3).values.max(dim=1).values


@register(PvseNetworkSpec)
class Pvse(Network):
    """With K = 1 an item has one vector (n, D) and no residuals; else (n, K, D), and in training residuals alike.

    Word vectors start as in the other networks and are trained; the reference reads GloVe vectors and freezes them.
    """

    def __init__(self, spec: PvseNetworkSpec, *, width: int, vocabulary_size: int) -> None:
        super().__init__(spec)
        self._spec = spec
        heads, dropout = spec.embeddings, spec.dropout
        self.image_map = nn.Linear(width, spec.embedding_size)  # default start: the released Xavier one is never called
        self.image_head = PolysemousHead(width, spec.embedding_size, heads=heads, dropout=dropout)
        self.words = word_embedding(vocabulary_size, spec.word_size)
        self.gru = nn.GRU(spec.word_size, spec.embedding_size // 2, batch_first=True, bidirectional=True)
        self.caption_head = PolysemousHead(spec.word_size, spec.embedding_size, heads=heads, dropout=dropout)
        self.dropout = nn.Dropout(dropout)

    def encode_images(self, images: ImageInputs) -> Encoded:
        """Embeddings that depend on the set of real regions alone, not on their order."""
        mask = region_mask(images.counts, images.features.shape[1])
        whole = self.dropout(self.image_map(mean_of_items(images.features, mask)))
        return self._encoded(*self.image_head(whole, images.features, mask))

    def encode_captions(self, captions: CaptionInputs) -> Encoded:
        """Attention reads the word vectors themselves, not the states of the GRU."""
        words = embed_words(self.words, captions.tokens, captions.lengths_on_host)
        words = drop_numbers(self.dropout, words)
        whole = self.dropout(end_states(self.gru, words, self._spec.end_state))
        return self._encoded(*self.caption_head(whole, *unpacked(words)))

    def similarity(self, images: Encoded, captions: Encoded) -> Tensor:
        """(n, m) cosines of the most similar embeddings, float32 or wider."""
        if self._spec.embeddings == 1:
            return most_similar_pair(images.vectors[:, None], captions.vectors[:, None])
        return most_similar_pair(images.vectors, captions.vectors)

    def _encoded(self, embeddings: Tensor, residuals: Tensor) -> Encoded:
        if self._spec.embeddings == 1:
            return Encoded(embeddings.squeeze(1))
        return Encoded(embeddings, residuals=residuals if self.training else None)  # only losses read them
