"""Weights of SGRAF (Paranioar/SGRAF), SAF or SGR according to the contents of the file."""

from __future__ import annotations

from vsetune.networks.importing.imported import Recognised
from vsetune.networks.importing.released_file import Released

PARTS = ("img_enc", "txt_enc", "sim_enc")

_MODULES = {
    "image_map": "img_enc.fc",
    "words": "txt_enc.embed",
    "gru": "txt_enc.cap_rnn",
    "image_attention.local": "sim_enc.v_global_w.embedding_local.0",
    "image_attention.local_norm": "sim_enc.v_global_w.embedding_local.1",
    "image_attention.whole": "sim_enc.v_global_w.embedding_global.0",
    "image_attention.whole_norm": "sim_enc.v_global_w.embedding_global.1",
    "image_attention.common": "sim_enc.v_global_w.embedding_common.0",
    "caption_attention.local": "sim_enc.t_global_w.embedding_local.0",
    "caption_attention.whole": "sim_enc.t_global_w.embedding_global.0",
    "caption_attention.common": "sim_enc.t_global_w.embedding_common.0",
    "local_map": "sim_enc.sim_tranloc_w",
    "global_map": "sim_enc.sim_tranglo_w",
    "reasoning.score": "sim_enc.sim_eval_w",
}
_SAF = {"reasoning.gate": "sim_enc.SAF_module.attn_sim_w", "reasoning.gate_norm": "sim_enc.SAF_module.bn"}
_STEP = {"query": "graph_query_w", "key": "graph_key_w", "out": "sim_graph_w"}
_STEPS = 3


def recognised(released: Released) -> Recognised:
    """The tensors determine everything except the attention scale, which is 9 in all released models."""
    released.chosen("no_imgnorm", {False: False}, False)
    released.chosen("no_txtnorm", {False: False}, False)
    is_saf = released.settings.get("module_name", "SAF" if released.has("sim_enc.SAF_module.") else "SGR") == "SAF"
    modules, of_reasoning = dict(_MODULES), {}
    if is_saf:
        modules |= _SAF
    else:
        steps = _steps(released)
        of_reasoning["steps"] = steps
        modules |= {
            f"reasoning.steps.{step}.{ours}": f"sim_enc.SGR_module.{step}.{theirs}"
            for step in range(steps)
            for ours, theirs in _STEP.items()
        }
    return Recognised(
        {
            "name": "sgraf_saf" if is_saf else "sgraf_sgr",
            "embedding_size": released.size("img_enc.fc.weight", 0, 1024),
            "word_size": released.size("txt_enc.embed.weight", 1, 300),
            "similarity_size": released.size("sim_enc.sim_eval_w.weight", 1, 256),
            "attention_scale": 9.0,
            "map_bias": True,
            **of_reasoning,
        },
        modules,
        regions=released.size("sim_enc.v_global_w.embedding_local.1.weight", 0, 36),
        width=released.size("img_enc.fc.weight", 1, 2048),
        vocabulary_size=released.size("txt_enc.embed.weight", 0, 1),
    )


def _steps(released: Released) -> int:
    """The number of steps in the settings; else the number in the file, at least the three of the paper."""
    steps = int(released.number("sgr_step", 0))
    if steps:
        return steps
    numbers = [name.split(".")[2] for name in released.tensors if name.startswith("sim_enc.SGR_module.")]
    return max([_STEPS, *(int(number) + 1 for number in numbers if number.isdigit())])
