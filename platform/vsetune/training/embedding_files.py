"""The embeddings of a split as files that other programs read."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor

from vsetune.errors import StorageError
from vsetune.home.whole_files import make_folder, whole_file, write_text
from vsetune.training.search_index import SearchIndex

Format = Literal["npy", "parquet"]


def write_embeddings(index: SearchIndex, folder: Path, *, format: Format) -> list[Path]:
    """Write the vectors of a network that embeds, float32 or wider: (N, D), the means of a probabilistic one; (N, K, D)
    with several embeddings of an item. Returns the files.

    npy: `images.npy` and `captions.npy` with a row for each image or caption of the split, in its order; `images.csv`
    names the rows, `captions.csv` has for each caption its text and the row of its image. parquet: `images.parquet` and
    `captions.parquet`, tables with the same columns and the vector as a list of fixed length. StorageError when the
    folder cannot be written.
    """
    encoded = index.encoded
    (texts,) = encoded.captions
    owner = encoded.owner.tolist()
    images: dict[str, Sequence[Any]] = {"image": index.images}
    named = [index.images[row] for row in owner]
    captions: dict[str, Sequence[Any]] = {"image_row": owner, "image": named, "caption": index.captions}
    make_folder(folder)
    write = _write_npy if format == "npy" else _write_parquet
    return [
        path for name, columns, vectors in (
            ("images", images, encoded.images.vectors), ("captions", captions, texts.vectors)
        )
        for path in write(folder, name, columns, _on_host(vectors))
    ]


def _on_host(vectors: Tensor) -> np.ndarray:
    found: np.ndarray = vectors.detach().cpu().numpy()
    return found


def _write_npy(folder: Path, name: str, columns: dict[str, Sequence[Any]], vectors: np.ndarray) -> list[Path]:
    arrays, names = folder / f"{name}.npy", folder / f"{name}.csv"
    try:
        with whole_file(arrays, durable=False) as stream:
            np.save(stream, vectors, allow_pickle=False)
    except OSError as error:
        raise _unwritable(arrays, error) from error
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["row", *columns])
    table.writerows([number, *values] for number, values in enumerate(zip(*columns.values(), strict=True)))
    write_text(names, text.getvalue())
    return [arrays, names]


def _write_parquet(folder: Path, name: str, columns: dict[str, Sequence[Any]], vectors: np.ndarray) -> list[Path]:
    import pyarrow
    from pyarrow import parquet

    lists = pyarrow.array(vectors.ravel())
    for size in reversed(vectors.shape[1:]):
        lists = pyarrow.FixedSizeListArray.from_arrays(lists, size)
    table = pyarrow.table({**columns, "embedding": lists})
    file = folder / f"{name}.parquet"
    try:
        with whole_file(file, durable=False) as stream:
            parquet.write_table(table, stream)
    except OSError as error:
        raise _unwritable(file, error) from error
    return [file]


def _unwritable(file: Path, error: OSError) -> StorageError:
    return StorageError(
        "VSE-T040", "{file}: cannot write ({reason}); free space, or choose another --output.", file=file,
        reason=error.strerror or error,
    )
