"""Tiny models of `transformers` with random weights, saved with tokeniser and preprocessor: CLIP, SigLIP, towers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

SIZE = 32
WORDS = ("a", "dog", "red", "car", "on", "the", "grass", "man", "two", "birds", "##s", "runs", "!", "small",
         "large", "blue", "green", "white", "circle", "square", "star")
_UNKNOWN, _PADDING, _START, _MASK, _END = range(len(WORDS), len(WORDS) + 5)
"""Ids of the special words, except of BERT's tokeniser."""
_VISION = {
    "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 20, "image_size": SIZE,
    "patch_size": 8,
}
_TEXT = {
    "hidden_size": 12, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 32,
    "max_position_embeddings": 12,
}
MEAN, DEVIATION = [0.48, 0.45, 0.4], [0.27, 0.26, 0.28]


def save_tiny(kind: str, folder: Path, *, seed: int = 0) -> Any:
    """A model of this kind in evaluation mode, also saved in the folder: `clip`, `siglip`, `altclip`, `vit`, `dinov2`,
    `resnet`, `convnext`, `bert`, `modernbert`."""
    torch.manual_seed(seed)
    model = _MODELS[kind]().eval()
    with torch.no_grad():
        for parameter in model.parameters():  # fresh weights are so small that towers would hardly differ
            parameter.add_(0.2 * torch.randn_like(parameter))
        if hasattr(model, "logit_scale"):
            model.logit_scale.fill_(3.1)
        if hasattr(model, "logit_bias"):
            model.logit_bias.fill_(-4.5)
    model.save_pretrained(folder)
    if kind not in ("bert", "modernbert"):
        save_processor(kind, folder)
    if kind in ("clip", "siglip", "altclip", "bert", "modernbert"):
        save_tokeniser(kind, folder)
    return model


def save_processor(kind: str, folder: Path) -> None:
    square = {"height": SIZE, "width": SIZE}
    colours = {"image_mean": MEAN, "image_std": DEVIATION}
    if kind in ("clip", "altclip"):
        made = transformers.CLIPImageProcessorPil(size={"shortest_edge": SIZE}, crop_size=square, **colours)
    elif kind == "siglip":
        made = transformers.SiglipImageProcessorPil(size=square, **colours)
    elif kind == "dinov2":
        made = transformers.BitImageProcessorPil(size={"shortest_edge": 36}, crop_size=square, **colours)
    elif kind == "convnext":
        made = transformers.ConvNextImageProcessorPil(size={"shortest_edge": SIZE}, **colours)
    else:
        made = transformers.ViTImageProcessorPil(size=square, **colours)
    made.save_pretrained(folder)


def save_tokeniser(kind: str, folder: Path) -> None:
    """Ids as the kind numbers them: padding is not 0, and 0 is a word, except for BERT."""
    special = {"bert": ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")}.get(kind)
    words = [*special, *WORDS] if special else [*WORDS, "[UNK]", "[PAD]", "[CLS]", "[MASK]", "[SEP]"]
    tokeniser = transformers.BertTokenizerFast(vocab={word: number for number, word in enumerate(words)})
    tokeniser.model_max_length = 12
    tokeniser.save_pretrained(folder)


def _clip() -> Any:
    text = _TEXT | {"bos_token_id": _START, "eos_token_id": _END, "pad_token_id": _PADDING}
    return transformers.CLIPModel(
        transformers.CLIPConfig(text_config=text, vision_config=_VISION, projection_dim=10)
    )


def _siglip() -> Any:
    special = {"pad_token_id": _PADDING, "bos_token_id": _START, "eos_token_id": _END}
    text = _TEXT | special | {"hidden_size": 16, "projection_size": 16}
    return transformers.SiglipModel(transformers.SiglipConfig(text_config=text, vision_config=_VISION))


def _altclip() -> Any:
    text = _TEXT | {"pad_token_id": 1, "max_position_embeddings": 20, "project_dim": 14}
    return transformers.AltCLIPModel(
        transformers.AltCLIPConfig(text_config=text, vision_config=_VISION, projection_dim=10)
    )


_MODELS = {
    "clip": _clip,
    "siglip": _siglip,
    "altclip": _altclip,
    "vit": lambda: transformers.ViTModel(transformers.ViTConfig(**_VISION)),
    "dinov2": lambda: transformers.Dinov2Model(transformers.Dinov2Config(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=SIZE, patch_size=8
    )),
    "resnet": lambda: transformers.ResNetModel(transformers.ResNetConfig(
        embedding_size=4, hidden_sizes=[4, 8], depths=[1, 1], layer_type="basic"
    )),
    "convnext": lambda: transformers.ConvNextModel(transformers.ConvNextConfig(
        hidden_sizes=[4, 8], depths=[1, 1], num_stages=2, patch_size=4
    )),
    "bert": lambda: transformers.BertModel(transformers.BertConfig(**_TEXT)),
    "modernbert": lambda: transformers.ModernBertModel(transformers.ModernBertConfig(
        **_TEXT, pad_token_id=_PADDING, bos_token_id=_START, eos_token_id=_END, cls_token_id=_START,
        sep_token_id=_END, global_attn_every_n_layers=1,
    )),
}
