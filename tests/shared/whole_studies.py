"""A tiny study whose trials are really trained: its file, and a run of it by this process."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from vsetune.study.preparation import prepare_study
from vsetune.study.run import StudyOutcome, run_study

SCENES: dict[str, Any] = {"path": "data/scenes", "scenes": {"train": 48, "validation": 16, "test": 16}}
VSEPP: dict[str, Any] = {"name": "vsepp", "fixed": {"embedding_size": 16, "word_size": 8}}
TRAINING: dict[str, Any] = {"epochs": 2, "batch_size": 40, "validate_every_steps": 3, "learning_rate": 1e-3}
ONE_TRIAL: dict[str, Any] = {"losses": [{"name": "lmh"}], "search": {"configurations": 1}}


def write_study(folder: Path, **changes: Any) -> Path:
    """The file of study `tiny`: two losses, two configurations each, one seed."""
    plain = {
        "study": "tiny", "data": SCENES, "networks": [VSEPP], "losses": [{"name": "lmh"}, {"name": "lseh"}],
        "training": TRAINING, "search": {"configurations": 2}, "scheduler": {"kind": "none"}, "seeds": [0],
        "resources": {"cpus": 1, "retries": 0},
    }
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(plain | changes))
    return path


def run(path: Path, *, resume: bool = False, **more: Any) -> tuple[StudyOutcome, str]:
    """What became of the study, and what was shown meanwhile."""
    console = Console(file=io.StringIO(), width=200)
    prepared = prepare_study(path, console)
    outcome = run_study(prepared, resume=resume, retry_failed=False, address=None, console=console, **more)
    return outcome, console.file.getvalue()  # type: ignore[attr-defined]
