"""Dual encoders as folders of `transformers`: one model, or two joined towers with their projections."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import save_file

from vsetune.networks.dual_encoder.towers import JoinedTowers
from vsetune.networks.dual_encoder.trained_layers import merged_state

VISION, TEXT = "vision", "text"
"""Folders of joined towers."""
_PROJECTIONS = "projections.safetensors"
_README = """\
# An image tower and a text tower of `transformers`, joined

The vectors of these lines equal those of the trained network; `image_vectors @ text_vectors.T` are cosine similarities.
Run them in this folder. `images` is a list of PIL images in RGB, `texts` a list of captions.

```python
from safetensors.torch import load_file
from torch.nn.functional import normalize
from transformers import AutoImageProcessor, AutoModel, AutoTokenizer

vision, text = AutoModel.from_pretrained("{vision}"), AutoModel.from_pretrained("{text}")
maps = load_file("{projections}")

pixels = AutoImageProcessor.from_pretrained("{vision}", use_fast=False)(images, return_tensors="pt")["pixel_values"]
words = AutoTokenizer.from_pretrained("{text}", padding_side="right")(
    texts, padding=True, truncation=True, max_length={longest}, return_tensors="pt"
)
states = text(input_ids=words["input_ids"], attention_mask=words["attention_mask"]).last_hidden_state
mask = words["attention_mask"][..., None]
image_vectors = normalize(vision(pixel_values=pixels).{image_pooling} @ maps["image"].T)
text_vectors = normalize({text_pooling} @ maps["text"].T)
```

A warning that weights of a `pooler` are new changes nothing: its output is not used.
"""
_README_OF_ONE = """\
# A dual encoder of `transformers`

The vectors of these lines equal those of the trained network. Run them in this folder. `images` is a list of PIL images
in RGB, `texts` a list of captions.

```python
from transformers import AutoModel, AutoProcessor

model, processor = AutoModel.from_pretrained("."), AutoProcessor.from_pretrained(".", use_fast=False)
output = model(**processor(
    text=texts, images=images, padding="max_length", truncation=True, return_tensors="pt"
))
image_vectors, text_vectors = output.image_embeds, output.text_embeds
```
"""
_WITHOUT_MASK = """
Captions need `padding="max_length"`: the model was trained on captions padded to {longest} ids and reads their padding,
so `padding=True` gives other vectors.
"""
_TEXT_POOLINGS = {"mean": "(states * mask).sum(dim=1) / mask.sum(dim=1)", "first": "states[:, 0]"}


def save_plain(model: Any, folder: Path, *, part: str = "") -> None:
    """Write a model of `transformers` in float32, low-rank updates added to its weights.

    part: attribute of the library's model that `model` is, in versions where a tower is a part of one.
    """
    from transformers import AutoModel

    with torch.random.fork_rng(devices=[]):
        plain: Any = cast(Any, AutoModel).from_config(model.config).float()
    if getattr(model, "pooler", plain) is None:
        plain.pooler = None
    getattr(plain, part, plain).load_state_dict(merged_state(model))
    plain.save_pretrained(folder)


def save_whole(model: Any, folder: Path, *, longest: int, reads_padding: bool) -> None:
    """Write a dual encoder with a README of the lines that use it. longest: most ids of a caption. reads_padding:
    whether it reads padded captions without a mask."""
    save_plain(model, folder)
    more = _WITHOUT_MASK.format(longest=longest) if reads_padding else ""
    (folder / "README.md").write_text(_README_OF_ONE + more)


def save_towers(towers: JoinedTowers, folder: Path, *, image_size: int, longest: int) -> None:
    """Write both towers, the (D, W) and (D, V) projections, and a README with the lines that use them.

    image_size: pixels per side; longest: most ids of a caption. Both towers are models that `lacks_class` passes.
    """
    image: Any = towers.image
    save_plain(image, folder / VISION, part="vision_model")
    save_plain(towers.text, folder / TEXT, part="text_model")
    maps = {"image": towers.image_map.weight, "text": towers.text_map.weight}
    save_file({name: value.detach().contiguous() for name, value in maps.items()}, folder / _PROJECTIONS)
    (folder / "README.md").write_text(_README.format(
        vision=VISION, text=TEXT, projections=_PROJECTIONS, longest=longest,
        image_pooling=_image_pooling(image, image_size), text_pooling=_TEXT_POOLINGS[towers.text_pooling],
    ))


def lacks_class(tower: Any) -> bool:
    """Whether `AutoModel` has no class for a tower: it is none of `transformers`, or the text tower of a SigLIP."""
    config = getattr(tower, "config", None)
    if config is None:
        return True
    from transformers import MODEL_MAPPING

    return type(config) not in MODEL_MAPPING


@torch.no_grad()
def _image_pooling(tower: Any, size: int) -> str:
    """What `JoinedTowers.vectors_of_pixels` takes of the output of this tower."""
    output = tower(pixel_values=torch.zeros(1, 3, size, size))
    if getattr(output, "pooler_output", None) is not None:
        return "pooler_output.flatten(start_dim=1)"
    return "last_hidden_state[:, 0]" if output.last_hidden_state.ndim == 3 else "last_hidden_state.mean(dim=(2, 3))"
