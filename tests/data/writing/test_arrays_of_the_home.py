"""Arrays that one machine has made are fetched by the others, where the home is on object storage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from s3_server import endpoint, prefix

from vsetune.data.stored.array_cache import cached_array
from vsetune.home.paths import home
from vsetune.home.s3 import put_bytes

__all__ = ["endpoint", "prefix"]
MADE = np.arange(12, dtype=np.float32).reshape(4, 3)


def get(made: list[str], name: str) -> np.ndarray:
    def make() -> np.ndarray:
        made.append(name)
        return MADE.copy()

    return cached_array("s3://home/data/x", "vectors.npy", rows=4, make=make)


def test_an_array_is_made_once_for_all_machines(prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VSETUNE_HOME", prefix)
    made: list[str] = []
    for node in ("first", "second"):
        monkeypatch.setenv("VSETUNE_NODE_FOLDER", str(tmp_path / node))
        assert np.array_equal(get(made, node), MADE)
        assert (home() / "cache" / "vectors.npy").is_file()
    assert made == ["first"]
    put_bytes(f"{prefix}/cache/vectors.npy", b"no array")
    monkeypatch.setenv("VSETUNE_NODE_FOLDER", str(tmp_path / "third"))
    assert np.array_equal(get(made, "third"), MADE)
    assert made == ["first", "third"], "what is damaged there is made again"
