"""Readers of raw layouts. Each gives a RawDataset; `read_raw` picks the reader a recipe asks for."""

from __future__ import annotations

from vsetune.config.sources.recipe import (
    AnySource,
    CaptionTableSource,
    FeatureFolderSource,
    IaprSource,
    KarpathySource,
    ScenesSource,
)
from vsetune.data.making.raw import RawDataset
from vsetune.data.making.readers.caption_table import read_caption_table
from vsetune.data.making.readers.feature_folder import read_feature_folder
from vsetune.data.making.readers.iapr import read_iapr
from vsetune.data.making.readers.karpathy import read_karpathy
from vsetune.data.making.scenes import read_scenes

__all__ = ["read_raw"]


def read_raw(source: AnySource) -> RawDataset:
    """Read captions, split lists and the places of images; no image is opened. DataError, ConfigError."""
    match source:
        case ScenesSource():
            return read_scenes(source)
        case KarpathySource():
            return read_karpathy(source)
        case CaptionTableSource():
            return read_caption_table(source)
        case FeatureFolderSource():
            return read_feature_folder(source)
        case IaprSource():
            return read_iapr(source)
