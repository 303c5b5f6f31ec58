"""The words of typical errors, as people read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trained_here import open_attempt, train

from vsetune.errors import VsetuneError
from vsetune.training.checkpoint import CHECKPOINT_FILE
from vsetune.training.device import use_threads


def test_typical_refusals_read_like_this(make_trial: Any, data_path: str, tmp_path: Path, snapshot: Any) -> None:
    network = {"name": "vsepp", "embedding_size": 8, "word_size": 6}
    finished = train(make_trial(epochs=0.5), tmp_path / "finished")
    wider = network | {"embedding_size": 9, "start_from": str(finished.best_path)}
    train(make_trial(epochs=0.5), tmp_path / "damaged")
    (tmp_path / "damaged" / CHECKPOINT_FILE).write_bytes(b"x")
    found = []
    for do in (
        lambda: open_attempt(make_trial(batch_size=43), tmp_path / "a"),
        lambda: use_threads(0),
        finished.advance,
        lambda: open_attempt(make_trial(epochs=0.5), tmp_path / "damaged"),
        lambda: open_attempt(make_trial(network=network | {"start_from": "s3://bucket/best.safetensors"}), tmp_path),
        lambda: open_attempt(make_trial(network=wider), tmp_path / "b"),
        lambda: open_attempt(make_trial(epochs=1.0, linear_schedule={"warmup_steps": 6}), tmp_path / "c"),
    ):
        with pytest.raises(VsetuneError) as caught:
            do()
        found.append(str(caught.value).replace(data_path, "DATA").replace(str(tmp_path), "FOLDER"))
    assert found == snapshot
