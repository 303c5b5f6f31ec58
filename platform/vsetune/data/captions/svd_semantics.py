"""Semantic vectors of captions: TF-IDF and truncated SVD (Gong and Cosma 2022, Eq. 5), as their code builds them.

Fitted on one split only (the train split) and stored as a file, because every trial of a study needs the same ones.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from vsetune.config.sources.trial_inputs import SemanticSpec
from vsetune.data.stored.array_cache import cached_array
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.shards import iter_captions
from vsetune.errors import DataError

if TYPE_CHECKING:
    from nltk.stem.porter import PorterStemmer

_log = logging.getLogger(__name__)

_METHOD = "tfidf-svd-1"
"""Part of the file name: raise the number when the vectors of an equal recipe change."""


def semantic_vectors(dataset: Dataset, spec: SemanticSpec, *, split: str) -> np.ndarray:
    """(captions, k) float32, row = caption id; k is spec.size, or less on small data. Read-only.

    A caption without any known word is a zero row; the loss defines its cosine. Computed once and stored beside the
    shards, or in vsetune's home when the data are remote or read-only.
    """
    captions = dataset.split(split).captions
    recipe = f"{_METHOD}-k{spec.size}-i{spec.iterations}-r{spec.seed}"
    name = f"semantics-{split}-{recipe}-{dataset.split(split).captions_fingerprint}.npy"
    return cached_array(
        dataset.path, name, rows=captions, make=lambda: caption_vectors(map(stems, iter_captions(dataset, split)), spec)
    )


def stems(caption: str) -> str:
    """Letters only, lower case, without NLTK's stop words, each word Porter-stemmed, joined by spaces."""
    words = re.sub(r"[^a-zA-Z#]", " ", caption).lower().split()
    return " ".join(_stem(word) for word in words if word not in ENGLISH_STOP_WORDS)


def caption_vectors(stemmed: Iterable[str], spec: SemanticSpec) -> np.ndarray:
    """(captions, k) float32: the scores A V of the TF-IDF matrix A on its first k right singular vectors V.

    scikit-learn's own stop list is applied to stemmed words, as in the reference: it drops `two` and `across`, and
    misses words whose stem differs. Leaving it out would change cosines by up to 0.5.
    """
    from sklearn.feature_extraction.text import (
        TfidfVectorizer,  # takes a second, and most trials find these vectors made
    )
    from sklearn.utils.extmath import randomized_svd

    try:
        weights = TfidfVectorizer(stop_words="english").fit_transform(stemmed)
    except ValueError as error:
        raise DataError(
            f"semantic vectors: {error}; need captions with words beyond stop words, or a loss without semantics."
        ) from error
    size = min(spec.size, *weights.shape)
    if size < spec.size:
        _log.info("semantic vectors: k is %d, the data allow no more (%d asked for)", size, spec.size)
    # The call inside TruncatedSVD, without its explained variance, which divides by zero on identical captions.
    _, _, directions = randomized_svd(
        weights, n_components=size, n_iter=spec.iterations, random_state=spec.seed, flip_sign=False
    )
    return np.asarray(weights @ directions.T, dtype=np.float32)


@cache
def _stem(word: str) -> str:
    return str(_stemmer().stem(word))


@cache
def _stemmer() -> PorterStemmer:
    from nltk.stem.porter import PorterStemmer

    return PorterStemmer()


_WORDS = """
    i me my myself we our ours ourselves you you're you've you'll you'd your yours yourself yourselves he him his
    himself she she's her hers herself it it's its itself they them their theirs themselves what which who whom this
    that that'll these those am is are was were be been being have has had having do does did doing a an the and but
    if or because as until while of at by for with about against between into through during before after above below
    to from up down in out on off over under again further then once here there when where why how all any both each
    few more most other some such no nor not only own same so than too very s t can will just don don't should
    should've now d ll m o re ve y ain aren aren't couldn couldn't didn didn't doesn doesn't hadn hadn't hasn hasn't
    haven haven't isn isn't ma mightn mightn't mustn mustn't needn needn't shan shan't shouldn shouldn't wasn wasn't
    weren weren't won won't wouldn wouldn't
    """
ENGLISH_STOP_WORDS = frozenset(_WORDS.split())
"""NLTK's 179 words as the LSEH reference used them, before NLTK added contractions; NLTK itself downloads them. LSEH
drops these words before stemming, and those of scikit-learn's own list after it."""
