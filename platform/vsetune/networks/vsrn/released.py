"""Weights of VSRN (KunpengLi1994/VSRN)."""

from __future__ import annotations

from vsetune.networks.importing.imported import Recognised
from vsetune.networks.importing.released_file import Released

PARTS = ("img_enc", "txt_enc")

_BLOCK = {"theta": "theta", "phi": "phi", "g": "g", "w": "W.0", "norm": "W.1"}
_MODULES = {
    "region_map": "img_enc.fc",
    "region_gru": "img_enc.img_rnn",
    "image_norm": "img_enc.bn",
    "words": "txt_enc.embed",
    "word_gru": "txt_enc.rnn",
    **{
        f"graph.{block}.{ours}": f"img_enc.Rs_GCN_{block + 1}.{theirs}"
        for block in range(4)
        for ours, theirs in _BLOCK.items()
    },
}


def recognised(released: Released) -> Recognised:
    """A BatchNorm behind the GRU makes it `flickr30k`. The caption generator is in no released file: weight 0."""
    released.chosen("use_abs", {False: False}, False)
    released.chosen("no_imgnorm", {False: False}, False)
    return Recognised(
        {
            "name": "vsrn",
            "embedding_size": released.size("img_enc.fc.weight", 0, 2048),
            "word_size": released.size("txt_enc.embed.weight", 1, 300),
            "mode": "flickr30k" if released.has("img_enc.bn.") else "coco",
            "region_normalization": "channel_over_regions",
            "graph": "released",
            "captioning_weight": 0.0,
        },
        _MODULES,
        width=released.size("img_enc.fc.weight", 1, 2048),
        vocabulary_size=released.size("txt_enc.embed.weight", 0, 1),
    )
