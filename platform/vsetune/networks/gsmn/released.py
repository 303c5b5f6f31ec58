"""Weights of GSMN (CrossmodalGroup/GSMN), dense or sparse."""

from __future__ import annotations

from vsetune.networks.importing.imported import Recognised, assumed_settings
from vsetune.networks.importing.released_file import Released

PARTS = ("img_enc", "txt_enc", "i2t_match_G", "t2i_match_G")
RENAMED = {"graph_convolution_1": "vGNN", "graph_convolution_3": "tGNN"}

_REGIONS, _WORDS = "i2t_match_G", "t2i_match_G"


def recognised(released: Released) -> Recognised:
    """Its models were trained with the released propagation, in which the edge weights of words have no effect."""
    kernels = released.size(f"{_REGIONS}.vGNN.mean_rho", 0, 8)
    released.chosen("no_imgnorm", {False: False}, False)
    released.chosen("no_txtnorm", {False: False}, False)
    spec = {
        "name": "gsmn",
        "embedding_size": released.size("img_enc.fc.weight", 0, 1024),
        "word_size": released.size("txt_enc.embed.weight", 1, 300),
        "text_graph": released.chosen("is_sparse", {True: "sparse", False: "dense"}, "dense"),
        "propagation": "released",
        "kernel_normalization": "kernels",
        "attention_scale": released.number("lambda_softmax", 20.0),
        "blocks": released.size(f"{_REGIONS}.vGNN.conv_weights.0.weight", 1, 16),
        "kernels": kernels,
        "hidden_size": released.size(f"{_REGIONS}.out_1.weight_v", 1, 32),
    }
    return Recognised(
        spec,
        {
            "region_map": "img_enc.fc",
            "words": "txt_enc.embed",
            "gru": "txt_enc.rnn",
            "kernels.mean_distance": f"{_REGIONS}.vGNN.mean_rho",
            "kernels.mean_angle": f"{_REGIONS}.vGNN.mean_theta",
            "kernels.width_distance": f"{_REGIONS}.vGNN.precision_rho",
            "kernels.width_angle": f"{_REGIONS}.vGNN.precision_theta",
            "region_graph.map": tuple(f"{_REGIONS}.vGNN.conv_weights.{kernel}" for kernel in range(kernels)),
            "region_scores.inner": f"{_REGIONS}.out_1",
            "region_scores.outer": f"{_REGIONS}.out_2",
            "word_graph.map": tuple(f"{_WORDS}.tGNN.conv_weights.{kernel}" for kernel in range(kernels)),
            "word_scores.inner": f"{_WORDS}.out_1",
            "word_scores.outer": f"{_WORDS}.out_2",
        },
        width=released.size("img_enc.fc.weight", 1, 2048),
        vocabulary_size=released.size("txt_enc.embed.weight", 0, 1),
        unused={f"{_WORDS}.tGNN.params": "scales of the kernels over words; normalising the edge weights cancels them"},
        assumed=assumed_settings(released, spec, {"text_graph": "is_sparse", "attention_scale": "lambda_softmax"}),
    )
