"""Readers of raw layouts. Each returns a RawDataset; `read_raw` selects the reader of a recipe's layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vsetune.config.registry import guarded, import_sibling
from vsetune.config.sources.recipe import (
    AnySource,
    CaptionTableSource,
    FeatureFolderSource,
    IaprSource,
    KarpathySource,
    ScenesSource,
    SourceSpec,
)
from vsetune.data.making.raw import RawDataset, RawSplit
from vsetune.data.making.readers.caption_table import read_caption_table
from vsetune.data.making.readers.feature_folder import read_feature_folder
from vsetune.data.making.readers.iapr import read_iapr
from vsetune.data.making.readers.karpathy import read_karpathy
from vsetune.data.making.scenes import read_scenes
from vsetune.data.stored import storage
from vsetune.errors import ConfigError

__all__ = ["READER_FILE", "read_raw"]

READER_FILE = "reader"


_READERS: dict[type[SourceSpec], Callable[[Any], RawDataset]] = {
    ScenesSource: read_scenes, KarpathySource: read_karpathy, CaptionTableSource: read_caption_table,
    FeatureFolderSource: read_feature_folder, IaprSource: read_iapr,
}


def read_raw(source: AnySource) -> RawDataset:
    """Read captions, split lists and the places of images; no image is opened. DataError, ConfigError; StorageError for
    an unreadable place."""
    try:
        return _READERS.get(type(source), _read_by_plugin)(source)
    except OSError as error:  # from checks whether a file exists
        raise storage.read_failure(error.filename or f"layout {source.layout}", error) from error


def _read_by_plugin(source: SourceSpec) -> RawDataset:
    """Read by the function `read` of the `reader.py` beside the source's spec. ConfigError, one line, for its
    exceptions."""
    module = import_sibling(type(source), READER_FILE)
    read, raw, found = getattr(module, "read", None), None, "no function `read`"
    if callable(read):
        with guarded(type(source)):
            raw = read(source)
        found = f"read returned a {type(raw).__name__}"
    if not isinstance(raw, RawDataset) or not all(isinstance(each, RawSplit) for each in raw.splits.values()):
        raise ConfigError(
            "VSE-D047", "{where}: {found}, need a function `read(source)` that returns a RawDataset of splits",
            where=f"layout {source.layout}: {getattr(module, '__file__', READER_FILE + '.py')}", found=found,
        )
    return raw
