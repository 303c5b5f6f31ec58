"""Weights of PVSE (yalesong/pvse), for images."""

from __future__ import annotations

from vsetune.networks.importing.imported import Recognised, assumed_settings
from vsetune.networks.importing.released_file import Released

PARTS = ("img_enc", "txt_enc")
RENAMED = {"our_model": "pie_net"}

HEAD = {
    "attention.inner": "attention.w_1", "attention.outer": "attention.w_2", "local_map": "fc", "norm": "layer_norm",
}
"""Modules of a polysemous head, ours and released."""

CNN = "the CNN; ingest the cells of its last feature map"


def recognised(released: Released) -> Recognised:
    """Files from before the option `legacy` were all trained with that end state."""
    released.chosen("order", {False: False}, False)
    spec = {
        "name": "pvse",
        "embedding_size": released.size("img_enc.fc.weight", 0, 1024),
        "word_size": released.size("txt_enc.embed.weight", 1, 300),
        "embeddings": released.size("img_enc.pie_net.attention.w_2.weight", 0, 2),
        "dropout": released.number("dropout", 0.0),
        "end_state": released.chosen("legacy", {True: "legacy", False: "final"}, "legacy"),
    }
    return Recognised(
        spec,
        {
            "image_map": "img_enc.fc",
            "words": "txt_enc.embed",
            "gru": "txt_enc.rnn",
            **{f"image_head.{ours}": f"img_enc.pie_net.{theirs}" for ours, theirs in HEAD.items()},
            **{f"caption_head.{ours}": f"txt_enc.pie_net.{theirs}" for ours, theirs in HEAD.items()},
        },
        width=released.size("img_enc.fc.weight", 1, 2048),
        vocabulary_size=released.size("txt_enc.embed.weight", 0, 1),
        unused={"img_enc.cnn.": CNN},
        assumed=assumed_settings(released, spec, {"dropout": "dropout", "end_state": "legacy"}),
    )
