"""The printed words of typical errors of data sets; other tests compare codes and fields."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from vsetune.config.sources.recipe import CaptionTableSource, KarpathySource
from vsetune.data.devices import device_named
from vsetune.data.making.data_place import check_space
from vsetune.data.making.raw import decode_image
from vsetune.data.making.readers import read_raw
from vsetune.data.making.shard_making import to_float16
from vsetune.data.stored import storage
from vsetune.data.stored.dataset import Dataset
from vsetune.data.stored.manifest import Manifest
from vsetune.data.stored.vocabulary import Vocabulary
from vsetune.errors import VsetuneError


def test_the_words_of_typical_errors(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    table, entries = tmp_path / "captions.csv", tmp_path / "dataset.json"
    table.write_text("image,caption\na.jpg,a dog, running\n")
    entries.write_text(json.dumps({"images": [{"split": "train", "filename": "a.jpg", "sentences": "a dog"}]}))
    os.mkfifo(tmp_path / "fifo")
    attempts: list[Callable[[], object]] = [
        lambda: Dataset.open(str(tmp_path / "nowhere")),
        lambda: Dataset.open(str(tmp_path)),
        lambda: Manifest.from_bytes(b'{"format": "vsetune-data", "version": 9}', where="manifest.json"),
        lambda: Vocabulary.from_json('{"words": ["a", "a"]}'),
        lambda: storage.read_bytes(str(tmp_path / "fifo")),
        lambda: storage.read_inside(str(tmp_path), "../up.tar"),
        lambda: decode_image(b"no image", place="a.jpg"),
        lambda: to_float16(1e6, place="a.jpg"),  # type: ignore[arg-type]
        lambda: device_named("tpu", key="features.device"),
        lambda: check_space(tmp_path, 1 << 80),
        lambda: read_raw(KarpathySource(captions=str(entries), images=str(tmp_path))),
        lambda: read_raw(CaptionTableSource(captions=str(table), images=[str(tmp_path)], lists={"train": "x"})),
    ]
    words = []
    for attempt in attempts:
        with pytest.raises(VsetuneError) as caught:
            attempt()
        words.append(f"{caught.value.problem.code} {caught.value}".replace(str(tmp_path), "FOLDER"))
    words[9] = words[9].split(" MiB free")[1]  # how much is free differs
    assert words == snapshot
