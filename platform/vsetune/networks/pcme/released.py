"""Weights of PCME (naver-ai/pcme)."""

from __future__ import annotations

from vsetune.networks.importing.imported import Recognised, assumed_settings
from vsetune.networks.importing.released_file import Released
from vsetune.networks.pvse.released import CNN, HEAD

PARTS = ("img_enc", "txt_enc")

_START = 15.0
"""Initial a and b of the match probability, for files without the loss."""


def recognised(released: Released) -> Recognised:
    """a and b of the match probability are parameters of the loss, which a training checkpoint contains too."""
    spec = {
        "name": "pcme",
        "embedding_size": released.size("img_enc.fc.weight", 0, 1024),
        "word_size": released.size("txt_enc.embed.weight", 1, 300),
        "end_state": "legacy",
        "samples": max(1, int(released.number("n_samples_inference", 7))),
    }
    return Recognised(
        spec,
        {
            "image_map": "img_enc.fc",
            "image_spread.attention.inner": "img_enc.uncertain_net.attention.w_1",
            "image_spread.attention.outer": "img_enc.uncertain_net.attention.w_2",
            "image_spread.local_map": "img_enc.uncertain_net.fc",
            "image_spread_map": "img_enc.uncertain_net.fc2",
            "words": "txt_enc.embed",
            "gru": "txt_enc.rnn",
            "caption_spread.attention.inner": "txt_enc.uncertain_net.attention.w_1",
            "caption_spread.attention.outer": "txt_enc.uncertain_net.attention.w_2",
            "caption_spread.local_map": "txt_enc.uncertain_net.fc",
            "spread_gru": "txt_enc.uncertain_net.rnn",
            "match_scale": "criterion.negative_scale",
            "match_shift": "criterion.shift",
            **{f"image_head.{ours}": f"img_enc.pie_net.{theirs}" for ours, theirs in HEAD.items()},
            **{f"caption_head.{ours}": f"txt_enc.pie_net.{theirs}" for ours, theirs in HEAD.items()},
        },
        width=released.size("img_enc.fc.weight", 1, 2048),
        vocabulary_size=released.size("txt_enc.embed.weight", 0, 1),
        unused={"img_enc.cnn.": CNN},
        absent={"match_scale": _START, "match_shift": _START},
        assumed=assumed_settings(released, spec, {"samples": "n_samples_inference"}),
    )
