"""Grid features without a network: statistics of cells through a fixed random ReLU layer, in plain numpy.

A cell is described by a colour histogram, a histogram of gradient orientations and its position. The random layer
makes conjunctions of them (red x striped x upper left), so that even the mean over cells keeps what stands where.
Units are then centred and scaled by what they are on a fixed set of rendered scenes: without it all images point the
same way, and a loss on hardest negatives collapses at the first step.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import numpy as np
from PIL import Image
from threadpoolctl import ThreadpoolController

from vsetune.config.sources.recipe import PixelsSpec, ScenesSource
from vsetune.data.making.raw import decode_image
from vsetune.data.making.scenes import read_scenes

_CELL = 12
"""Pixels per side of a cell after resizing."""
_LEVELS = 4
_COLOURS = _LEVELS**3
_ORIENTATIONS = 8
_REFERENCES = 256
_LEAST_SCALE = 0.01


class PixelExtractor:
    """See the module. Deterministic: the layer is sampled from the recipe's seed."""

    batch_size = 64

    def __init__(self, spec: PixelsSpec) -> None:
        self._spec = spec
        self.regions = spec.grid * spec.grid
        self.width = spec.width
        inputs = _COLOURS + _ORIENTATIONS + 1 + 2 * spec.grid
        generator = np.random.default_rng(spec.seed)
        self._weights = generator.standard_normal((inputs, spec.width), dtype=np.float32)
        self._bias = -generator.random(spec.width, dtype=np.float32)
        reference = self._units(_reference_scenes())
        self._centre = reference.mean(axis=(0, 1))
        self._scale = reference.mean(axis=1).std(axis=0) + _LEAST_SCALE

    def recipe(self) -> dict[str, Any]:
        return self._spec.to_plain()

    def extract(self, images: Sequence[Image.Image]) -> np.ndarray:
        features: np.ndarray = (self._units(images) - self._centre) / self._scale
        return features

    def _units(self, images: Sequence[Image.Image]) -> np.ndarray:
        side = self._spec.grid * _CELL
        resized = [np.asarray(image.resize((side, side), Image.Resampling.BILINEAR)) for image in images]
        statistics = cell_statistics(np.stack(resized), grid=self._spec.grid)
        with _one_thread():
            units: np.ndarray = np.maximum(statistics @ self._weights + self._bias, 0.0)
        return units


def _one_thread() -> AbstractContextManager[object]:
    """The last bits of a matrix product depend on how many threads share it, and so would the shards' hashes."""
    limited: AbstractContextManager[object] = _libraries().limit(limits=1, user_api="blas")
    return limited


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


def cell_statistics(pixels: np.ndarray, *, grid: int) -> np.ndarray:
    """(B, S, S, 3) uint8 to (B, grid * grid, statistics) float32; S is a multiple of grid.

    Histograms enter as the square root of their shares, so that small objects count beside the background.
    """
    batch = pixels.shape[0]
    colours = (pixels.astype(np.int64) * _LEVELS) // 256
    bins = (colours[..., 0] * _LEVELS + colours[..., 1]) * _LEVELS + colours[..., 2]
    ones = np.ones(bins.shape, dtype=np.float32)
    colour = np.sqrt(_histogram(bins, ones, bins_count=_COLOURS, grid=grid))
    grey = pixels.astype(np.float32).mean(axis=3)
    down, right = np.gradient(grey, axis=(1, 2))
    strength = np.hypot(down, right)
    angle = np.arctan2(down, right) % np.pi
    orientation = np.minimum((angle * (_ORIENTATIONS / np.pi)).astype(np.int64), _ORIENTATIONS - 1)
    edges = _histogram(orientation, strength, bins_count=_ORIENTATIONS, grid=grid) / 255.0
    energy = edges.sum(axis=-1, keepdims=True)
    place = np.broadcast_to(_positions(grid), (batch, grid * grid, 2 * grid))
    return np.concatenate([colour, np.sqrt(edges) * 2, np.sqrt(energy), place], axis=-1).astype(np.float32)


def _histogram(bins: np.ndarray, weights: np.ndarray, *, bins_count: int, grid: int) -> np.ndarray:
    """Mean weight per bin in each cell: (B, S, S) to (B, grid * grid, bins)."""
    batch, side = bins.shape[0], bins.shape[1]
    cell = np.arange(side) // (side // grid)
    index = (np.arange(batch)[:, None, None] * grid + cell[:, None]) * grid + cell[None, :]
    flat = (index * bins_count + bins).ravel()
    counts: np.ndarray = np.bincount(flat, weights=weights.ravel(), minlength=batch * grid * grid * bins_count)
    shares: np.ndarray = counts.reshape(batch, grid * grid, bins_count) / (side // grid) ** 2
    return shares


def _reference_scenes() -> list[Image.Image]:
    source = ScenesSource(train=_REFERENCES, validation=1, test=0, seed=0)
    images = [image.source for image in read_scenes(source).splits["train"].images]
    return [decode_image(image.read(), place=image.place) for image in images if image is not None]


def _positions(grid: int) -> np.ndarray:
    """One-hot row and column of each cell, (grid * grid, 2 * grid)."""
    eye = np.eye(grid)
    return np.concatenate([np.repeat(eye, grid, axis=0), np.tile(eye, (grid, 1))], axis=1)
