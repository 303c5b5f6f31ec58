"""What a step frees is there for the next one, and goes back when a trial ends."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from vsetune.training.freed_memory import give_back_freed_memory, keep_freed_memory

PROGRAM = """
import resource, sys
import numpy as np
from vsetune.training.freed_memory import give_back_freed_memory, keep_freed_memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

def step():
    kept = [np.full(1 << 21, 1.0) for _ in range(6)]  # six blocks of 16 MB that live at once

if sys.argv[1] == "keep":
    assert keep_freed_memory()
step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
full = resident()
give_back_freed_memory()
print(faults, full - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="this C library has no switch for it")
def test_kept_memory_is_not_asked_for_again_and_given_back_at_once() -> None:
    def run(word: str) -> list[int]:
        done = subprocess.run([sys.executable, "-c", PROGRAM, word], capture_output=True, text=True, check=True)
        return [int(each) for each in done.stdout.split()]

    usual_faults, _ = run("usual")
    faults, given_back = run("keep")
    assert faults < usual_faults / 100
    assert given_back > 60 * 2**20


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.libc_ver", lambda: ("", ""))
    assert keep_freed_memory() is False
    give_back_freed_memory()
