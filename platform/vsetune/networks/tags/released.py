"""Weights of TAGS-DC (LibertFan/TAGS) and of UNITER (ChenRocks/UNITER), which its training starts from.

Both files are bare state dicts with the names of UNITER's modules. Heads that a file lacks start as the code of TAGS-DC
starts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from vsetune.errors import DataError
from vsetune.networks.importing.imported import Recognised
from vsetune.networks.importing.released_file import Released
from vsetune.networks.tags.bert_start import LAYER
from vsetune.networks.tags.spec import TagsSpec

PARTS = ()
RENAMED = {"gamma": "weight", "beta": "bias"}
"""Names of LayerNorm in BERT's own files, which UNITER's code still takes."""

_TEXT, _IMAGE, _LAYERS = "uniter.embeddings", "uniter.img_embeddings", "uniter.encoder.layer"
_SIZES: dict[int, dict[str, Any]] = {
    768: {"size": "base", "text_model": "bert-base-cased"}, 1024: {"size": "large", "text_model": "bert-large-cased"},
}
"""Width of a token: our name, and a BERT of that shape with the word pieces that both were trained on."""

_MATCH = 1
"""The row of UNITER's matching head for a match."""

_MODULES = {
    "inputs.words": f"{_TEXT}.word_embeddings",
    "inputs.positions": f"{_TEXT}.position_embeddings",
    "inputs.types": f"{_TEXT}.token_type_embeddings",
    "inputs.word_norm": f"{_TEXT}.LayerNorm",
    "inputs.region_map": f"{_IMAGE}.img_linear",
    "inputs.region_norm": f"{_IMAGE}.img_layer_norm",
    "inputs.place_map": f"{_IMAGE}.pos_linear",
    "inputs.place_norm": f"{_IMAGE}.pos_layer_norm",
    "inputs.image_norm": f"{_IMAGE}.LayerNorm",
    "matching.pooled": "uniter.pooler.dense",
}
_TIED = "the word embeddings, which a head of words shares"
_UNUSED = {
    f"{_IMAGE}.mask_embedding.": "stands for masked regions, of which only UNITER's pre-training has any",
    "cls.predictions.decoder.": _TIED,
    "correction_output.predictions.decoder.": _TIED,
}
_OF_REGIONS = "a head of UNITER's pre-training, which guesses masked regions"


def recognised(released: Released) -> Recognised:
    """TAGS-DC after its second stage; or after the first, whose heads of replaced words start as in the second."""
    has_all = released.has("disc_output.") or released.has("correction_output.")
    replaced, corrected = ("disc_output", "correction_output") if has_all else ("itm_output", "cls")
    unused = {"itm_output.": "UNITER's head of matching; here rank_output scores"}
    return _network(
        released, {"matching.score": "rank_output", **_word_heads(released, replaced, corrected)}, unused=unused
    )


def recognised_uniter(released: Released) -> Recognised:
    """UNITER as it was pre-trained: its logit of a match is the score."""
    return _network(
        released, {"matching.score": "itm_output", **_word_heads(released, "itm_output", "cls")},
        rows={"matching.score": _MATCH}, unused={"feat_regress.": _OF_REGIONS, "region_classifier.": _OF_REGIONS},
    )


OTHERS = {"uniter": recognised_uniter}


def _network(
    released: Released, heads: Mapping[str, str], *, unused: Mapping[str, str], rows: Mapping[str, int] | None = None
) -> Recognised:
    spec = {"name": "tags", **_size(released)}
    in_layers = {
        f"encoder.layers.{number}.{ours}": f"{_LAYERS}.{number}.{theirs}"
        for number in range(TagsSpec.model_validate(spec).layers) for ours, theirs in LAYER.items()
    }
    return Recognised(
        spec, {**_MODULES, **in_layers, **heads},
        width=released.size(f"{_IMAGE}.img_linear.weight", 1, 2048),
        vocabulary_size=released.size(f"{_TEXT}.word_embeddings.weight", 0, 1),
        rows=rows or {},
        unused={**_UNUSED, **unused},
        assumed=("heads", "text_model"),
        spare=("masked_words", "replaced_words", "corrected_words"),
    )


def _size(released: Released) -> dict[str, Any]:
    """The settings of a spec for this width. DataError for a width that no released model has."""
    words = f"{_TEXT}.word_embeddings.weight"
    width = released.size(words, 1, 768)
    if width not in _SIZES:
        raise DataError(
            "VSE-N047", "{path}: {name} is {got} wide, need 768 or 1024, UNITER base or large: a file shows neither "
            "the attention heads nor the word pieces of other sizes; import one of these.", path=released.path,
            name=words, got=width,
        )
    return _SIZES[width]


def _word_heads(released: Released, replaced: str, corrected: str) -> dict[str, str]:
    """replaced, corrected: released names of the heads that detect and correct replaced words. DataError where a head
    of words has its own embeddings."""
    modules = {"replaced_words": replaced}
    words = released.tensors.get(f"{_TEXT}.word_embeddings.weight")
    for ours, theirs in (("masked_words", "cls"), ("corrected_words", corrected)):
        predictions = f"{theirs}.predictions"
        decoder = released.tensors.get(f"{predictions}.decoder.weight")
        if decoder is not None and words is not None and not torch.equal(decoder, words):
            raise DataError(
                "VSE-N048", "{path}: {name} is not {words}, need a head of words that shares the word embeddings; no "
                "network here has its own.", path=released.path, name=f"{predictions}.decoder.weight",
                words=f"{_TEXT}.word_embeddings.weight",
            )
        modules |= {
            f"{ours}.transform": f"{predictions}.transform.dense",
            f"{ours}.norm": f"{predictions}.transform.LayerNorm",
            f"{ours}.bias": f"{predictions}.bias",
        }
    return modules
