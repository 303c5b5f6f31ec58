"""A small study as the Python interface takes it."""

from __future__ import annotations

from typing import Any

import vsetune

SMALL: dict[str, Any] = {"name": "vsepp", "fixed": {"embedding_size": 16, "word_size": 8}}
TRAINING: dict[str, Any] = {"epochs": 2, "batch_size": 40, "validate_every_steps": 3, "learning_rate": 1e-3}
DATA: dict[str, Any] = {"path": "data/scenes", "scenes": {"train": 48, "validation": 16, "test": 16}}


def small_study(**changes: Any) -> vsetune.Study:
    keys: dict[str, Any] = {
        "study": "small", "data": DATA, "networks": [SMALL], "losses": ["lmh", "info_nce"], "baseline": "lmh",
        "training": TRAINING, "search": {"configurations": 1}, "scheduler": {"kind": "none"}, "seeds": [0, 1],
        "resources": {"cpus": 1, "retries": 0},
    }
    return vsetune.Study({**keys, **changes})
