"""Ready features as VSE++, SCAN, VSRN and SGRAF read them: SPLIT_ims.npy and SPLIT_caps.txt in one folder.

An array has one row per image or one row per caption (the same row five times, or as many as an image has captions);
the row counts and the rows themselves show which. Arrays are (rows, width) or (rows, regions, width) and stay on disk.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np

from vsetune.config.sources.recipe import FeatureFolderSource
from vsetune.data.making.raw import (
    FeatureArrays,
    FileStamp,
    RawDataset,
    RawImage,
    RawSplit,
    require_folder,
    require_text,
)
from vsetune.data.stored.plain_files import Flaw, caption_line, mapped_array
from vsetune.data.stored.storage import MISFIT, NAME_TWICE, NOT_IN_IT, TABLE_LINE
from vsetune.errors import DataError

_MOST_REPEATS = 1000


def read_feature_folder(source: FeatureFolderSource) -> RawDataset:
    """Read every SPLIT_ims.npy with its captions, optional SPLIT_boxes.npy and SPLIT_ids.txt. DataError."""
    folder = require_folder(source.folder, key="source.folder")
    names = sorted(name.removesuffix("_ims.npy") for name in os.listdir(folder) if name.endswith("_ims.npy"))
    if not names:
        raise DataError(NOT_IN_IT(where=f"source.folder: {folder}", need="*_ims.npy"))
    notes: list[str] = []
    splits = {name: _read_split(folder, name, source, notes) for name in names}
    without = [name for name, split in splits.items() if split.arrays is not None and split.arrays.boxes is None]
    if 0 < len(without) < len(splits):
        notes.append(f"boxes are left out: the split {without[0]} has none ({without[0]}_boxes.npy)")
    return RawDataset(splits, notes)


def _read_split(folder: Path, name: str, source: FeatureFolderSource, notes: list[str]) -> RawSplit:
    stamps = [FileStamp.of(folder / f"{name}_{kind}.npy") for kind in ("ims", "boxes")]
    features = _load(folder / f"{name}_ims.npy")
    captions = _captions(folder / f"{name}_caps.txt")
    per_image, stride = _layout(features, captions, folder / f"{name}_ims.npy", source.captions_per_image)
    images = len(captions) // per_image
    ids = _ids(folder, name, images=images, stride=stride)
    boxes = _boxes(folder / f"{name}_boxes.npy", features)
    if features.ndim == 2:
        features = features[:, None, :]
    raw = [
        RawImage(ids[i], tuple(captions[i * per_image : (i + 1) * per_image]), None, i * stride) for i in range(images)
    ]
    if stride > 1:
        notes.append(f"split {name}: features stood once per caption; kept every {stride}th row")
    files = tuple(stamp for stamp in stamps if stamp is not None)
    return RawSplit(raw, FeatureArrays(features, boxes, str(folder / f"{name}_ims.npy"), files))


def _load(path: Path) -> np.ndarray:
    array = _mapped(path)
    if array.ndim not in {2, 3} or array.dtype.kind != "f" or array.size == 0:
        raise DataError(MISFIT(
            where=path, found=f"{array.dtype} {array.shape}", need="floats (rows, width) or (rows, regions, width)",
            fix="save them so, with array.astype('float32').",
        ))
    return array


def _mapped(path: Path) -> np.ndarray:
    try:
        return mapped_array(path)
    except (Flaw, FileNotFoundError) as error:
        reason = error if isinstance(error, Flaw) else "no such file"
        raise DataError(
            "VSE-D011", "{where}: no plain array ({reason}); {fix}", where=path, reason=reason, fix="fetch it again."
        ) from error


def _captions(path: Path) -> list[str]:
    text = require_text(path, key="source.folder")
    captions = [caption_line(line) for line in text.removesuffix("\n").split("\n")]
    if not all(captions):
        raise DataError(TABLE_LINE(
            file=path, line=captions.index("") + 1, found="an empty line", need="one caption a line",
        ))
    return captions


def _layout(features: np.ndarray, captions: list[str], path: Path, wanted: int | None) -> tuple[int, int]:
    """(captions per image, rows per image). DataError when the counts do not fit."""
    rows, lines = len(features), len(captions)
    if lines == rows:
        per_image = wanted or _repeats(features, path)
        if per_image == 1 or _is_repeated(features, per_image):
            return per_image, per_image
    elif lines % rows == 0 and wanted in {None, lines // rows}:
        return lines // rows, 1
    expected = f"captions_per_image {wanted}" if wanted else "a whole number of captions per row"
    raise DataError(MISFIT(
        where=path, found=f"{rows} rows of features and {lines} captions", need=expected,
        fix="give one row per image, or each row repeated for every caption of its image.",
    ))


def _repeats(features: np.ndarray, path: Path) -> int:
    """How often each row stands in sequence. DataError for rows that are repeated, but not all equally often."""
    rows = len(features)
    times = next((n for n in range(1, min(rows, _MOST_REPEATS + 1)) if not (features[n] == features[0]).all()), rows)
    for each in range(min(times, _MOST_REPEATS), 1, -1):
        if _is_repeated(features, each):
            return each
    pairs = (features[row : row + 2] for row in np.unique(np.linspace(0, rows - 2, 20).astype(int)) if rows > 1)
    if times > 1 or any((first == second).all() for first, second in pairs):
        raise DataError(MISFIT(
            where=path, found=f"{rows} rows of features for as many captions, some the same as the row before",
            need="each row equally often", fix="set source.captions_per_image: 1 if every row is an image of its own, "
            "or give one row per image with the same number of captions for each.",
        ))
    return 1


def _is_repeated(features: np.ndarray, times: int) -> bool:
    """True when every row occurs `times` times in sequence; checks up to 20 images spread over the array."""
    if len(features) % times:
        return False
    images = len(features) // times
    for image in np.unique(np.linspace(0, images - 1, 20).astype(int)):
        rows = np.asarray(features[image * times : (image + 1) * times])
        if not (rows == rows[:1]).all():
            return False
    return True


def _boxes(path: Path, features: np.ndarray) -> np.ndarray | None:
    if not path.exists():
        return None
    boxes = _mapped(path)
    expected = (*features.shape[:2], 4)
    if boxes.shape != expected or boxes.dtype.kind != "f":
        raise DataError(MISFIT(
            where=path, found=f"{boxes.dtype} {boxes.shape}", need=f"floats {expected}",
            fix="fetch boxes and features again.",
        ))
    low, high = float(boxes.min()), float(boxes.max())
    if not (low >= 0 and high <= 1):
        raise DataError(MISFIT(
            where=path, found=f"boxes from {low:g} to {high:g}", need="shares of the image from 0 to 1",
            fix="divide x by its width and y by its height.",
        ))
    upside_down = np.argwhere((boxes[..., 2:] < boxes[..., :2]).any(axis=-1))
    if len(upside_down):
        at = tuple(upside_down[0])
        x1, y1, x2, y2 = map(float, boxes[at])
        raise DataError(
            "VSE-D060", "{file}: row {row}, region {region} ends at ({x2:g}, {y2:g}) and begins at ({x1:g}, {y1:g}), "
            "need x1, y1, x2, y2; add x1 and y1 to a width and a height.", file=path, row=at[0], region=at[1], x2=x2,
            y2=y2, x1=x1, y1=y1,
        )
    return boxes


def _ids(folder: Path, name: str, *, images: int, stride: int) -> list[str]:
    """Ids from SPLIT_ids.txt, one line per image or per row; row numbers when there is none."""
    path = folder / f"{name}_ids.txt"
    if not path.is_file():
        return [f"{name}-{index}" for index in range(images)]
    ids = [line.strip() for line in require_text(path, key="source.folder").split("\n") if line.strip()]
    if len(ids) == images * stride:
        ids = ids[::stride]
    if len(ids) != images:
        raise DataError(MISFIT(
            where=path, found=f"{len(ids)} ids", need=f"one for each of {images} images", fix="write one a line.",
        ))
    if len(set(ids)) < len(ids):
        twice = Counter(ids).most_common(1)[0][0]
        raise DataError(NAME_TWICE(where=path, name=twice))
    return ids
