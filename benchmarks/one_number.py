"""Where one M-Recall, one margin and one image of a study go: every function of vsetune that has it in its arguments,
its variables or its result, in the order in which they first had it. Those that hand it on, as their result or to the
function at which the trace ends, have a `>`; the others look at it.

    PYTHONPATH=platform python benchmarks/one_number.py [m_recall|margin|image ...]

Runs small studies with `sys.setprofile`. M-Recall: from the worker to the board, with the worker in this process and
with Ray, and the objects in which it rests before the board is made. margin: likewise, from the study file; and with
the worker in this process alone up to the formula of its loss. image: the features of one training image, from
its shard to the first `encode_images` that gets them, once read from the shards and once through the bank of this node.
A number counts where it stands by itself or directly in a container, dataclass or spec; features also in containers of
those.
Takes a minute or two.
"""

from __future__ import annotations

import gc
import io
import os
import sys
import tarfile
import tempfile
import threading
from array import array
from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests" / "shared"))

from small_study import small_study  # noqa: E402
from trials_here import without_ray  # noqa: E402

import vsetune  # noqa: E402
from vsetune.config.spec.base import Spec  # noqa: E402

SOURCE = str(ROOT / "platform" / "vsetune")
MARGIN = 0.19371
_MOST = 500

Is = Callable[[Any], bool | None]
"""Whether a value is the one that is followed; None: not by itself, but perhaps in it."""


def is_number(number: float) -> Is:
    def found(value: Any) -> bool | None:
        if isinstance(value, float):
            return value == number
        return number in value if isinstance(value, array) else None

    return found


def is_image(features: np.ndarray) -> Is:
    """features: (regions, width), of which the first region tells the image."""
    marks = [features[0].astype(kind).tobytes() for kind in (features.dtype, np.float32)]

    def found(value: Any) -> bool | None:
        if isinstance(value, torch.Tensor):
            value = value.detach().cpu().numpy()
        if isinstance(value, np.ndarray):
            value = value.tobytes() if value.dtype.kind == "f" else b""
        return any(mark in value for mark in marks) if isinstance(value, bytes) else None

    return found


def holds(value: Any, followed: Is, deep: int) -> bool:
    """Whether a value is the followed one, or a container, dataclass or spec with it inside."""
    found = followed(value)
    if found is not None or not deep:
        return bool(found)
    if isinstance(value, dict):
        inner: Any = value.values()
    elif isinstance(value, list | tuple):
        inner = value
    elif isinstance(value, Spec) or (is_dataclass(value) and not isinstance(value, type)):
        inner = list(vars(value).values()) if hasattr(value, "__dict__") else []
    else:
        return False
    return len(inner) <= _MOST and any(holds(each, followed, deep - 1) for each in inner)


class Trace:
    """The functions that had the value, in order, the types that it had there, and those of objects in which it rests.

    deep: levels of containers. until: name of the method at whose first call with the value the trace ends; none: it
    ends with the study.
    """

    def __init__(self, followed: Is, *, deep: int = 1, until: str | None = None) -> None:
        self.followed, self.deep, self.until = followed, deep, until
        self.functions: dict[tuple[str, str], bool] = {}
        self.forms: dict[str, None] = {}
        self.resting: set[str] = set()
        self.has_ended = False

    def __call__(self, frame: FrameType, event: str, result: Any) -> None:
        code = frame.f_code
        if self.has_ended or not code.co_filename.startswith(SOURCE) or code.co_name.startswith("<"):
            return
        if event == "call" and code.co_name == self.until and self.note(frame, None):
            self.has_ended = True
            before: FrameType | None = frame
            while before is not None:  # the functions that wait for this one
                self.note(before, None)
                if self.place(before) in self.functions:
                    self.functions[self.place(before)] = True
                before = before.f_back
        if event == "call" and code.co_name == "write_results" and self.until is None:
            self.look()
        if event == "return":
            self.note(frame, result)

    def place(self, frame: FrameType) -> tuple[str, str]:
        return frame.f_code.co_filename.removeprefix(SOURCE + "/"), frame.f_code.co_qualname

    def note(self, frame: FrameType, result: Any) -> bool:
        """Note the function, if it has the value now. Returns whether it has."""
        place = self.place(frame)
        is_ours = frame.f_code.co_filename.startswith(SOURCE) and not frame.f_code.co_name.startswith("<")
        if not is_ours or self.functions.get(place):
            return False
        gives = holds(result, self.followed, self.deep)
        having = [each for each in (*frame.f_locals.values(), result) if holds(each, self.followed, self.deep)]
        if having:
            self.functions[place] = gives
            self.forms |= dict.fromkeys(type(each).__name__ for each in having)
        return bool(having)

    def look(self) -> None:
        """Before the board is made, notes the types of all living objects that have the number among their own
        attributes."""
        for each in gc.get_objects():
            package = str(type(each).__module__).partition(".")[0]
            is_ours = package in ("vsetune", "optuna") and hasattr(each, "__dict__")
            if is_ours and any(holds(value, self.followed, 2) for value in vars(each).values()
                               if not is_dataclass(value)):
                self.resting.add(type(each).__name__)

    def follow(self, study: vsetune.Study) -> None:
        """In this thread, and in those that begin meanwhile where the trace ends before the study does."""
        if self.until is not None:
            threading.setprofile(self)
        sys.setprofile(self)
        try:
            study.run(progress=False)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def show(self, what: str) -> None:
        files = {file for file, _ in self.functions}
        print(f"{what}: {len(self.functions)} functions in {len(files)} files", end="")
        print(f"; {sum(self.functions.values())} hand it on; as {', '.join(self.forms)}", end="")
        print(f"; rests in {', '.join(sorted(self.resting))}" if self.resting else "")
        for (file, name), gives in self.functions.items():
            print(f"  {'>' if gives else ' '} {file:40} {name}")


def first_image(path: Path) -> np.ndarray:
    """The features of the first image of a data set's training split, as its shard has them."""
    shard = min(path.glob("train*.tar"))
    with tarfile.open(shard) as tar:
        member = next(each for each in tar if each.name.endswith(".features.npy"))
        content = tar.extractfile(member)
        assert content is not None
        features: np.ndarray = np.load(io.BytesIO(content.read()))
        return features


def main() -> None:
    wanted = sys.argv[1:] or ["m_recall", "margin", "image"]
    with tempfile.TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        environment = {"VSETUNE_HOME": home, "MLFLOW_TRACKING_URI": "none"}
        os.environ |= environment
        scenes = {"train": 48, "validation": 29, "test": 16}
        streamed = {"cpus": 1, "retries": 0, "reading": "stream"}
        changes: dict[str, Any] = {
            "losses": [{"name": "lmh", "fixed": {"margin": MARGIN}}], "seeds": [0], "resources": streamed,
            "data": {"path": "data/scenes", "scenes": scenes},
        }
        without_ray(patch)
        small_study(study="known", **changes).run(progress=False)
        number = max(vsetune.open_study("known").curves["m_recall"].tolist())
        if "image" in wanted:
            image = is_image(first_image(Path(home) / "data" / "scenes"))
            for reading in ("stream", "bank"):
                trace = Trace(image, deep=3, until="encode_images")
                trace.follow(small_study(study=reading, **changes | {"resources": {**streamed, "reading": reading}}))
                trace.show(f"image, read by {reading}")
        if "margin" in wanted:
            trace = Trace(is_number(MARGIN), until="max_of_hinges_output")
            trace.follow(small_study(study="formula", **changes))
            trace.show(f"margin {MARGIN}, up to its loss")
        numbers = {"m_recall": (f"M-Recall {number:.6g}", number), "margin": (f"margin {MARGIN}", MARGIN)}
        traces = {what: Trace(is_number(each)) for name, (what, each) in numbers.items() if name in wanted}
        for place, trace in enumerate(traces.values()):
            trace.follow(small_study(study=f"here{place}", **changes))
        patch.undo()
        os.environ |= environment
        for place, trace in enumerate(traces.values()):
            trace.follow(small_study(study=f"ray{place}", **changes))
        for what, trace in traces.items():
            trace.show(what)


if __name__ == "__main__":
    main()
