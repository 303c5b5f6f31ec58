"""Weights of VSE-infinity (woodfrog/vse_infty, branch bigru), with regions or with grid cells."""

from __future__ import annotations

from vsetune.errors import DataError
from vsetune.networks.importing.mapping import Recognised
from vsetune.networks.importing.released import Released

PARTS = ("img_enc", "txt_enc")

_CNN = "the CNN; ingest the cells of its last feature map"
_SPARE = "a BatchNorm that the released code makes and never calls"


def recognised(released: Released) -> Recognised:
    """Grid files keep the image tower under `image_encoder`, beside the CNN, and have no MLP."""
    if released.has("txt_enc.bert."):
        raise DataError(
            f"{released.path}: its caption tower is BERT, the network here reads words with a Bi-GRU; need a file of "
            "the branch bigru."
        )
    released.chosen("no_imgnorm", {False: False}, False)
    released.chosen("no_txtnorm", {False: False}, False)
    is_grid = released.has("img_enc.image_encoder.")
    tower = "img_enc.image_encoder" if is_grid else "img_enc"
    return Recognised(
        {
            "name": "vse_infinity",
            "embedding_size": released.size(f"{tower}.fc.weight", 0, 1024),
            "word_size": released.size("txt_enc.embed.weight", 1, 300),
            "pooling_size": released.size(f"{tower}.gpool.linear.weight", 1, 32),
            "image_mlp": not is_grid,
        },
        {
            "region_map": f"{tower}.fc",
            "region_mlp.inner": f"{tower}.mlp.layers.0",
            "region_mlp.norm": f"{tower}.mlp.bns.0",
            "region_mlp.outer": f"{tower}.mlp.layers.1",
            "image_pooling.gru": f"{tower}.gpool.gru",
            "image_pooling.score": f"{tower}.gpool.linear",
            "words": "txt_enc.embed",
            "gru": "txt_enc.rnn",
            "caption_pooling.gru": "txt_enc.gpool.gru",
            "caption_pooling.score": "txt_enc.gpool.linear",
        },
        width=released.size(f"{tower}.fc.weight", 1, 2048),
        vocabulary_size=released.size("txt_enc.embed.weight", 0, 1),
        unused={"img_enc.backbone.": _CNN, f"{tower}.mlp.bns.1.": _SPARE},
    )
