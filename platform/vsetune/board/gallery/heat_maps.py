"""Heat maps of the image regions behind a caption's score: attention of the words, or gradient x input of the regions.

Attention is used where words attend to regions (`Network.attention`): the weights of the score itself, per word and
their mean over the words. Other networks use h_r = [sum_d x_rd dS/dx_rd]+ with x the region features and S the
similarity of the pair: the loss of S, to first order, if the features of region r were removed. For a network that
reads photographs, regions are the cells of the last feature map of its CNN.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from vsetune.config.sources.trial_inputs import PixelInput
from vsetune.config.study.training import TrialSpec
from vsetune.data.batches.reader import evaluation_batches
from vsetune.data.stored.dataset import Dataset
from vsetune.networks.encoded import Encoded
from vsetune.networks.inputs import ImageInputs
from vsetune.networks.network_base import Network, evaluating
from vsetune.networks.parts.backbone import Backbone
from vsetune.training.validation import EncodedSplit, images_per_batch

Basis = Literal["attention", "gradient"]

CENTRE = 224 / 256
"""Share of the shorter side that a centre crop covers, see `PixelInput.evaluation`."""


@dataclass(frozen=True)
class HeatMap:
    """regions: (R,) >= 0, larger is warmer; attention: mean over the words, sums to 1; gradient: in units of the score.

    words: (L, R) attention of every token, start and end included, rows sum to 1; None for a gradient. centre: side of
    the central square that the regions cover, as a share of the image's shorter side; None: they cover the whole image.
    """

    basis: Basis
    regions: np.ndarray
    words: np.ndarray | None = None
    centre: float | None = None


def heat_maps(
    network: Network, dataset: Dataset, split: str, pairs: Mapping[int, tuple[int, Encoded]], *, images: Encoded,
    trial: TrialSpec, device: torch.device,
) -> dict[int, HeatMap]:
    """Heat maps by the keys of `pairs`. Pairs whose regions have no place in the image are left out.

    pairs: an image, by its index in the split, and an encoded caption, its own or any other. images: of the split,
    encoded by this network. The parameters get no gradient.
    """
    with evaluating(network):
        found = {key: attention_map(network, images[image : image + 1], words) for key, (image, words) in pairs.items()}
        if any(heat is None for heat in found.values()):
            inputs = _inputs_of(dataset, split, {image for image, _ in pairs.values()}, trial=trial, device=device)
            found = {
                key: gradient_map(network, inputs[image], words, pixels=trial.network.reads.pixels)
                for key, (image, words) in pairs.items()
            }
    return {key: heat for key, heat in found.items() if heat is not None}


def heat_map(
    network: Network, encoded: Encoded, inputs: ImageInputs, caption: Encoded, *, pixels: PixelInput | None
) -> HeatMap | None:
    """Heat map of one image, encoded and as the network reads it, and one encoded caption. pixels, None: as of
    `gradient_map`."""
    with evaluating(network):
        found = attention_map(network, encoded, caption)
        return found if found is not None else gradient_map(network, inputs, caption, pixels=pixels)


def caption_pairs(encoded: EncodedSplit, captions: Sequence[int]) -> dict[int, tuple[int, Encoded]]:
    """Captions of the split with their own images, as `heat_maps` takes them."""
    return {caption: (int(encoded.owner[caption]), encoded_caption(encoded, caption)) for caption in captions}


def encoded_caption(encoded: EncodedSplit, caption: int) -> Encoded:
    """One caption of the split, by its index there."""
    place = int((encoded.places == caption).nonzero())
    for group in encoded.captions:
        if place < len(group):
            return group[place : place + 1]
        place -= len(group)
    raise AssertionError(f"caption {caption} is in no group")


def attention_map(network: Network, image: Encoded, caption: Encoded) -> HeatMap | None:
    """Heat map of one image and one caption; None if words do not attend to regions."""
    weights = network.attention(image, caption)
    if weights is None:
        return None
    assert image.lengths is not None
    assert caption.lengths is not None
    words = weights[0, 0, : int(caption.lengths), : int(image.lengths)].double().cpu().numpy()
    return HeatMap("attention", words.mean(axis=0), words)


def gradient_map(
    network: Network, image: ImageInputs, caption: Encoded, *, pixels: PixelInput | None
) -> HeatMap | None:
    """Heat map of one image (its inputs) and one encoded caption. pixels: how the network reads photographs, None for
    region features.

    None if the regions have no place: for a network that makes one vector of a photograph without our CNN, or whose CNN
    gives one vector instead of cells. None too for a score that does not depend on the regions.
    """
    leaves: list[Tensor] = [image.features.detach().requires_grad_()] if pixels is None else []
    features = image.features if pixels is not None else leaves[0]

    def cut(_module: nn.Module, _inputs: object, cells: Tensor) -> Tensor:
        leaves.append(cells.detach().requires_grad_())
        return leaves[-1]

    hooks = [module.register_forward_hook(cut) for module in network.modules() if isinstance(module, Backbone)]
    # cuDNN has no backward pass of a GRU in evaluation mode, and VSRN reads the regions with one
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        try:
            score = network.similarity(network.encode_images(replace(image, features=features)), caption).sum()
        finally:
            for hook in hooks:
                hook.remove()
        if not leaves or not score.requires_grad:
            return None
        (gradient,) = torch.autograd.grad(score, leaves[0], allow_unused=True)
    return None if gradient is None else _warm(leaves[0].detach(), gradient, int(image.counts), pixels)


def _warm(values: Tensor, gradient: Tensor, regions: int, pixels: PixelInput | None) -> HeatMap | None:
    """values: (1, R, D) features, or (1, D, H, W) cells."""
    if pixels is None:
        return HeatMap("gradient", (gradient * values).sum(dim=-1).relu()[0, :regions].double().cpu().numpy())
    heat = (gradient * values).sum(dim=1).relu().flatten().double().cpu().numpy()
    centre = CENTRE if pixels.evaluation == "centre_crop" else None
    return HeatMap("gradient", heat, centre=centre) if len(heat) > 1 else None


def _inputs_of(
    dataset: Dataset, split: str, wanted: Collection[int], *, trial: TrialSpec, device: torch.device
) -> Mapping[int, ImageInputs]:
    """Network inputs of these images, by index in the split."""
    found: dict[int, ImageInputs] = {}
    reads = replace(trial.network.reads, pixels=whole_photographs(trial.network.reads.pixels))
    threads = trial.training.loader_workers
    with closing(evaluation_batches(
        dataset, split, batch_size=images_per_batch(reads.pixels), reads=reads, threads=threads, images=sorted(wanted)
    )) as batches:
        for batch in batches:
            inputs = batch.to(device).images
            found |= {index: _row(inputs, row) for row, index in enumerate(batch.image_ids.tolist())}
    return found


def whole_photographs(pixels: PixelInput | None) -> PixelInput | None:
    """Input without random crops: the cells of random crops have no place in the image."""
    return None if pixels is None else replace(pixels, evaluation_crops=0)


def _row(inputs: ImageInputs, row: int) -> ImageInputs:
    def one(values: Tensor | None) -> Tensor | None:
        return None if values is None else values[row : row + 1].clone()

    return ImageInputs(
        inputs.features[row : row + 1].clone(), inputs.counts[row : row + 1], one(inputs.boxes), one(inputs.pixels)
    )
