"""What a step frees is there for the next one, and goes back when a trial ends."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from vsetune.data.freed_memory import give_back_freed_memory, keep_freed_memory

PROGRAM = """
import resource, sys
import numpy as np
from vsetune.data.freed_memory import give_back_freed_memory, keep_freed_memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

def step():
    kept = [np.full(1 << 21, 1.0) for _ in range(6)]  # six blocks of 16 MB that live at once

def faults():
    step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

usual = faults()
assert keep_freed_memory()
kept = faults()
full = resident()
give_back_freed_memory()
print(usual, kept, full - resident())
"""


def printed(program: str) -> list[float]:
    """The numbers that a new process prints: what is kept is a switch of the whole process."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return [float(each) for each in done.stdout.split()]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="this C library has no switch for it")
def test_kept_memory_is_not_asked_for_again_and_given_back_at_once() -> None:
    usual, kept, given_back = printed(PROGRAM)
    assert kept < usual / 100
    assert given_back > 60 * 2**20


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.libc_ver", lambda: ("", ""))
    assert keep_freed_memory() is False
    give_back_freed_memory()


EXTRACTING = """
import resource
from PIL import Image
from vsetune.config.sources.recipe import EfficientNetLite0Spec
from vsetune.data.making import cnn_features

def measured():
    extractor = cnn_features.EfficientNetExtractor(EfficientNetLite0Spec())
    images = [Image.new("RGB", (64, 64), (shade, 20, 30)) for shade in range(8)]
    for _ in range(4):  # until what is kept suffices
        extractor.extract(images)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    total = sum(extractor.extract(images).sum() for _ in range(3))
    return total, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

keep, cnn_features.keep_freed_memory = cnn_features.keep_freed_memory, lambda: False
usual = measured()
cnn_features.keep_freed_memory = keep
print(*usual, *measured())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="this C library has no switch for it")
def test_features_of_the_next_images_are_made_in_the_memory_of_the_last() -> None:
    pytest.importorskip("efficientnet_lite_pytorch", reason="needs the extra `cnn`")
    usual_total, usual_faults, total, faults = printed(EXTRACTING)
    assert total == usual_total
    assert faults < usual_faults / 4
