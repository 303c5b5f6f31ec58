"""Weights of VSE++ (fartashf/vsepp), and of its variant with all regions in a row (LSEH)."""

from __future__ import annotations

from vsetune.networks.importing.imported import Recognised, assumed_settings
from vsetune.networks.importing.released_file import Released

PARTS = ("img_enc", "txt_enc")

_MODULES = {"image_map": "img_enc.fc", "words": "txt_enc.embed", "gru": "txt_enc.rnn"}
_REGION_WIDTH, _WIDEST_VECTOR = 2048, 4096
_CNN = "the CNN; ingest vectors of this CNN, each divided by its length"


def recognised(released: Released) -> Recognised:
    """An image map wider than any CNN's vector reads concatenated regions of 2048 numbers."""
    inputs = released.size("img_enc.fc.weight", 1, _REGION_WIDTH)
    is_flat = inputs > _WIDEST_VECTOR and inputs % _REGION_WIDTH == 0
    settings = released.settings
    spec = {
        "name": "vsepp",
        "embedding_size": released.size("img_enc.fc.weight", 0, 1024),
        "word_size": released.size("txt_enc.embed.weight", 1, 300),
        "image_input": "flatten" if is_flat else "mean",
        "absolute": bool(settings.get("use_abs", False)),
        "normalize_images": not settings.get("no_imgnorm", False),
        "similarity": released.chosen("measure", {"cosine": "cosine", "order": "order"}, "cosine"),
    }
    return Recognised(
        spec, _MODULES,
        regions=inputs // _REGION_WIDTH if is_flat else 1,
        width=_REGION_WIDTH if is_flat else inputs,
        vocabulary_size=released.size("txt_enc.embed.weight", 0, 1),
        unused={"img_enc.cnn.": _CNN},
        assumed=assumed_settings(
            released, spec, {"absolute": "use_abs", "normalize_images": "no_imgnorm", "similarity": "measure"}
        ),
    )
