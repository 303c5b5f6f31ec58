"""Weights of VSE-infinity (woodfrog/vse_infty): regions or grid cells, captions by BERT (master) or Bi-GRU (bigru)."""

from __future__ import annotations

from typing import Any

from vsetune.networks.importing.imported import Recognised
from vsetune.networks.importing.released_file import Released

PARTS = ("img_enc", "txt_enc")

_CNN = "the CNN, with strides and pooling of Caffe; ingest the cells of its last feature map"
_SPARE = "a BatchNorm that the released code makes and never calls"
_POOLER = "BERT's pooler, whose output the released code leaves unused"
_POSITIONS = "the numbers of the positions, in order"
_BERT = "bert-base-uncased"
"""The only BERT that the released code reads."""


def recognised(released: Released) -> Recognised:
    """Grid files keep the image tower under `image_encoder`, beside the CNN, and have no MLP."""
    released.chosen("no_imgnorm", {False: False}, False)
    released.chosen("no_txtnorm", {False: False}, False)
    is_grid = released.has("img_enc.image_encoder.")
    tower = "img_enc.image_encoder" if is_grid else "img_enc"
    settings, modules, words = _caption_tower(released)
    return Recognised(
        {
            "name": "vse_infinity",
            "embedding_size": released.size(f"{tower}.fc.weight", 0, 1024),
            "pooling_size": released.size(f"{tower}.gpool.linear.weight", 1, 32),
            "image_mlp": not is_grid,
            **settings,
        },
        {
            "region_map": f"{tower}.fc",
            "region_mlp.inner": f"{tower}.mlp.layers.0",
            "region_mlp.norm": f"{tower}.mlp.bns.0",
            "region_mlp.outer": f"{tower}.mlp.layers.1",
            "image_pooling.gru": f"{tower}.gpool.gru",
            "image_pooling.score": f"{tower}.gpool.linear",
            "caption_pooling.gru": "txt_enc.gpool.gru",
            "caption_pooling.score": "txt_enc.gpool.linear",
            **modules,
        },
        width=released.size(f"{tower}.fc.weight", 1, 2048),
        vocabulary_size=released.size(f"{words}.weight", 0, 1),
        unused={
            "img_enc.backbone.": _CNN, f"{tower}.mlp.bns.1.": _SPARE, "txt_enc.bert.pooler.": _POOLER,
            "txt_enc.bert.embeddings.position_ids": _POSITIONS,
        },
    )


def _caption_tower(released: Released) -> tuple[dict[str, Any], dict[str, str], str]:
    """Settings of the spec, modules, and the released name of the word vectors, for the caption tower."""
    if released.has("txt_enc.bert."):
        modules = {"transformer.body": "txt_enc.bert", "word_map": "txt_enc.linear"}
        return {"text_tower": "bert", "text_model": _BERT}, modules, "txt_enc.bert.embeddings.word_embeddings"
    word_size = released.size("txt_enc.embed.weight", 1, 300)
    return {"word_size": word_size}, {"words": "txt_enc.embed", "gru": "txt_enc.rnn"}, "txt_enc.embed"
