"""Fixed-seed loss curves of tiny runs: a refactoring must reproduce them.

Renew with: VSETUNE_RENEW_GOLDEN=1 python -m pytest tests/training/test_golden_curve.py
The change that renews them says in CHANGELOG.md, under "Numbers change", why they moved.

The file keeps one entry per platform, each with its relative tolerance; a platform without one is compared with
linux-x86_64 at OTHER_PLATFORM, since other processors round products differently and training amplifies that.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import pytest
from trained_here import train

GOLDEN = Path(__file__).with_name("golden_curves.json")
TOLERANCE, OTHER_PLATFORM = 1e-3, 1e-2
RUNS: dict[str, dict[str, Any]] = {
    "vsepp.lmh": {"loss": {"name": "lmh", "warmup_epochs": 1}},
    "vse_infinity.info_nce": {
        "network": {"name": "vse_infinity", "embedding_size": 8, "word_size": 6, "pooling_size": 4, "augment": False},
        "loss": {"name": "info_nce"},
    },
}


@pytest.mark.parametrize("run", RUNS)
def test_a_fixed_seed_reproduces_its_loss_curve(run: str, make_trial: Any, tmp_path: Path) -> None:
    attempt = train(make_trial(**RUNS[run], epochs=3.0, validate_every_steps=3), tmp_path)
    curve = [point.metrics["train_loss"] for point in attempt.history]
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    here = f"{sys.platform}-{platform.machine()}"
    if os.environ.get("VSETUNE_RENEW_GOLDEN"):
        golden.setdefault(here, {"relative_tolerance": TOLERANCE, "train_loss": {}})["train_loss"][run] = curve
        GOLDEN.write_text(json.dumps(golden, indent=1, sort_keys=True) + "\n")
    known = golden.get(here) or golden["linux-x86_64"] | {"relative_tolerance": OTHER_PLATFORM}
    assert curve == pytest.approx(known["train_loss"][run], rel=known["relative_tolerance"])
