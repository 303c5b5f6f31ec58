"""Survivors that a person has looked at, with the reason why no test kills them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Verdict = Literal["equivalent", "accepted"]
JUDGED = Path(__file__).parent / "judged.toml"


@dataclass(frozen=True)
class Judgement:
    """equivalent: no input tells the mutant from the code. accepted: some would, and the reason says why none is."""

    verdict: Verdict
    reason: str


def read_judged(path: Path = JUDGED) -> dict[tuple[str, str, str], Judgement]:
    """By file, function and changed lines, so that it holds when lines move. ValueError for an unknown verdict."""
    judged = {}
    for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("mutant", []):
        if entry["verdict"] not in ("equivalent", "accepted"):
            raise ValueError(f"{path.name}: got verdict {entry['verdict']!r}, need equivalent or accepted")
        key = entry["file"], entry["function"], entry["diff"].strip()
        judged[key] = Judgement(entry["verdict"], entry["reason"])
    return judged
