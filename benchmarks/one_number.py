"""Where one M-Recall and one margin of a study go: every function of vsetune that has the number in its arguments, its
variables or its result, from the worker to the board, and the objects in which it rests before the board is made.

    PYTHONPATH=platform python benchmarks/one_number.py

Runs a small study three times: to know an M-Recall of it; with its worker in this process, and with Ray, both with
`sys.setprofile` in the main thread. A number counts where it stands by itself or directly in a container or dataclass.
Prints the functions in the order in which they first had it. Takes a minute or two.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from array import array
from dataclasses import is_dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests" / "shared"))

from small_study import small_study  # noqa: E402
from trials_here import without_ray  # noqa: E402

import vsetune  # noqa: E402

SOURCE = str(ROOT / "platform" / "vsetune")
MARGIN = 0.19371
_DEEP, _MOST = 1, 500


def holds(value: Any, number: float, deep: int = _DEEP) -> bool:
    """Whether a value is the number, or a container or dataclass with the number in it."""
    if isinstance(value, float):
        return value == number
    if not deep:
        return False
    if isinstance(value, array):
        return number in value
    if isinstance(value, dict):
        inner: Any = value.values()
    elif isinstance(value, list | tuple):
        inner = value
    elif is_dataclass(value) and not isinstance(value, type):
        inner = list(vars(value).values()) if hasattr(value, "__dict__") else []
    else:
        return False
    return len(inner) <= _MOST and any(holds(each, number, deep - 1) for each in inner)


class Trace:
    """The functions that had the number, in order, and the types of objects in which it rests."""

    def __init__(self, number: float) -> None:
        self.number = number
        self.functions: dict[tuple[str, str], None] = {}
        self.resting: set[str] = set()

    def __call__(self, frame: FrameType, event: str, result: Any) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(SOURCE) or code.co_name.startswith("<"):
            return
        if event == "call" and code.co_name == "write_results":
            self.look()
        if event != "return":
            return
        place = code.co_filename.removeprefix(SOURCE + "/"), code.co_qualname
        if place not in self.functions and any(
            holds(value, self.number) for value in (*frame.f_locals.values(), result)
        ):
            self.functions[place] = None

    def look(self) -> None:
        """Before the board is made, notes the types of all living objects that have the number among their own
        attributes."""
        for each in gc.get_objects():
            package = str(type(each).__module__).partition(".")[0]
            is_ours = package in ("vsetune", "optuna") and hasattr(each, "__dict__")
            if is_ours and any(holds(value, self.number, 2) for value in vars(each).values()
                               if not is_dataclass(value)):
                self.resting.add(type(each).__name__)

    def follow(self, study: vsetune.Study) -> None:
        sys.setprofile(self)
        try:
            study.run(progress=False)
        finally:
            sys.setprofile(None)

    def show(self, what: str) -> None:
        files = {file for file, _ in self.functions}
        print(f"{what}: {len(self.functions)} functions in {len(files)} files", end="")
        print(f"; rests in {', '.join(sorted(self.resting))}" if self.resting else "")
        for file, name in self.functions:
            print(f"    {file:40} {name}")


def main() -> None:
    with tempfile.TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        os.environ |= {"VSETUNE_HOME": home, "MLFLOW_TRACKING_URI": "none"}
        scenes = {"train": 48, "validation": 29, "test": 16}
        changes: dict[str, Any] = {
            "losses": [{"name": "lmh", "fixed": {"margin": MARGIN}}], "seeds": [0],
            "data": {"path": "data/scenes", "scenes": scenes},
        }
        small_study(study="known", **changes).run(progress=False)
        recalls = vsetune.open_study("known").curves["m_recall"].tolist()
        number = max(recalls)
        traces = {f"M-Recall {number:.6g}": Trace(number), f"margin {MARGIN}": Trace(MARGIN)}
        without_ray(patch)
        for place, trace in enumerate(traces.values()):
            trace.follow(small_study(study=f"here{place}", **changes))
        patch.undo()
        os.environ |= {"VSETUNE_HOME": home, "MLFLOW_TRACKING_URI": "none"}
        for place, trace in enumerate(traces.values()):
            trace.follow(small_study(study=f"ray{place}", **changes))
        for what, trace in traces.items():
            trace.show(what)


if __name__ == "__main__":
    main()
