"""Runs the command line in this process, as the `vsetune` command does, exit code and all."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from vsetune.cli import output
from vsetune.cli.main import _exit_code


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.strip()]


@pytest.fixture
def vsetune(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    monkeypatch.setenv("COLUMNS", "200")
    for console in (output.results, output.messages):  # a width found at import (pytest-xdist sets COLUMNS) would stay
        monkeypatch.setattr(console, "_width", None)

    def run(*words: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["vsetune", *words])
        capfd.readouterr()
        try:
            code = _exit_code()
        except SystemExit as left:
            code = int(left.code or 0)
        said = capfd.readouterr()
        return Said(code, said.out, said.err)

    return run


@pytest.fixture
def home() -> Path:
    return Path(os.environ["VSETUNE_HOME"])


@pytest.fixture
def study(tmp_path: Path) -> Callable[..., Path]:
    def write(**changes: Any) -> Path:
        plain: dict[str, Any] = {
            "study": "tiny", "data": {"path": "data/scenes", "scenes": {"train": 24, "validation": 8, "test": 8}},
            "networks": [{"name": "vsepp", "fixed": {"embedding_size": 16, "word_size": 8}}],
            "losses": [{"name": "lmh"}], "training": {"epochs": 1, "batch_size": 40, "learning_rate": 1e-3},
        }
        path = tmp_path / "study.yaml"
        path.write_text(yaml.safe_dump(plain | changes))
        return path

    return write
