"""Weights of SCAN (kuanghuei/SCAN)."""

from __future__ import annotations

from vsetune.networks.importing.imported import Recognised, assumed_settings
from vsetune.networks.importing.released_file import Released

PARTS = ("img_enc", "txt_enc")

_MODULES = {"image_map": "img_enc.fc", "words": "txt_enc.embed", "gru": "txt_enc.rnn"}
_DIRECTIONS = {"t2i": "text_to_image", "i2t": "image_to_text"}
_POOLINGS = {"LogSumExp": "lse", "Mean": "mean", "Max": "max", "Sum": "sum"}
_NORMALIZATIONS = {
    "clipped_l2norm": "clipped_l2", "clipped": "clipped", "l2norm": "l2", "softmax": "softmax", "no_norm": "none",
}


def recognised(released: Released) -> Recognised:
    """Only the settings define how words and regions attend; without them it is text_to_image with log-sum-exp."""
    is_normed = "img_enc.fc.weight_v" in released.tensors
    image_map = "img_enc.fc.weight_v" if is_normed else "img_enc.fc.weight"
    released.chosen("no_imgnorm", {False: False}, False)
    released.chosen("no_txtnorm", {False: False}, False)
    direction = released.chosen("cross_attn", _DIRECTIONS, "text_to_image")
    pooling = released.chosen("agg_func", _POOLINGS, "lse")
    named = {
        "direction": "cross_attn", "pooling": "agg_func", "attention_scale": "lambda_softmax",
        "pooling_scale": "lambda_lse", "attention_normalization": "raw_feature_norm",
    }
    spec = {
        "name": "scan",
        "embedding_size": released.size(image_map, 0, 1024),
        "word_size": released.size("txt_enc.embed.weight", 1, 300),
        "direction": direction,
        "pooling": pooling,
        "attention_scale": released.number("lambda_softmax", 9.0 if direction == "text_to_image" else 4.0),
        "attention_normalization": released.chosen("raw_feature_norm", _NORMALIZATIONS, "clipped_l2"),
        "weight_norm": is_normed,
    }
    if pooling == "lse":
        spec["pooling_scale"] = released.number("lambda_lse", 6.0 if direction == "text_to_image" else 5.0)
    return Recognised(
        spec, _MODULES,
        width=released.size(image_map, 1, 2048),
        vocabulary_size=released.size("txt_enc.embed.weight", 0, 1),
        assumed=assumed_settings(released, spec, named),
    )
