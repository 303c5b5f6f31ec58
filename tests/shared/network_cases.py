"""Every network at its defaults and with the settings beside them that tests go through."""

from __future__ import annotations

from typing import Any

from vsetune.config.component_specs import NETWORKS
from vsetune.quality.network_learning import NetworkSubject

TINY_CNN = {"model": "random", "depths": (1,), "widths": (4,)}
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "vsepp": [
        {"image_input": "flatten"}, {"image_input": "global"}, {"normalize_images": False},
        {"absolute": True, "similarity": "order"}, {"image_input": "pixels", "backbone": TINY_CNN},
    ],
    "vsrn": [{"mode": "coco"}, {"mode": "coco", "region_normalization": "feature", "graph": "paper"}],
    "vse_infinity": [
        {"mlp_statistics": "padded"}, {"image_mlp": False},
        {"image_mlp": False, "image_input": "pixels", "backbone": TINY_CNN},
    ],
    "scan": [{"direction": "image_to_text", "pooling": "mean"}, {"norm": "released"}],
    "sgraf_saf": [{"gate_statistics": "pooled"}, {"norm": "released"}],
    "sgraf_sgr": [{"norm": "released"}],
    "gsmn": [
        {"text_graph": "sparse", "kernel_normalization": "neighbours"},
        {"text_graph": "sparse", "propagation": "released"},
    ],
    "pvse": [{"embeddings": 1}, {"embeddings": 3, "end_state": "legacy"}],
    "pcme": [{"similarity": "match_probability"}, {"similarity": "csd"}],
    "cgmn": [
        {"spatial_graph": True},
        {
            "spatial_graph": True, "region_normalization": "feature", "edge_weights": "cosine",
            "caption_graph": "dense", "caption_statistics": "padded",
        },
        {"norm": "released", "spatial_graph": True},
    ],
    "tags": [{"dropout": 0.0, "mlm_weight": 0.0}],
    "dual_encoder": [{"text_pooling": "first", "activation_checkpointing": True}],
    "mse": [{"image_input": "pixels", "backbone": TINY_CNN}, {"text": "bi_sum"}],
    "malali_keller": [{"image_input": "pixels", "backbone": TINY_CNN}],
}

CASES: dict[str, NetworkSubject] = {
    " ".join([name, *(f"{key}={value}" for key, value in settings.items() if key != "backbone")]):
        NetworkSubject(NETWORKS[name], settings)
    for name in NETWORKS for settings in ({}, *VARIANTS.get(name, []))
}
