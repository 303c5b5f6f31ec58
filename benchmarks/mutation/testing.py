"""Runs the tests of one mutant in a process of its own, on a copy of the tree: the working tree is never written to."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from typing import Literal

import pytest

Outcome = Literal["killed", "survived", "timed out"]
COPIED = ("benchmarks", "platform", "tests", "studies", "pyproject.toml")
_SLOW_IMPORTS = [
    "torch", "numpy", "pandas", "sklearn.cluster", "optuna", "sqlalchemy", "pydantic", "hypothesis", "pytest", "rich",
    "mutation.report",
]
_LONGEST_S = 1200.0
"""For all tests of an area on unchanged code."""
_NOTICED = ("FAILED", "ERROR", "ImportError while loading conftest")
"""Beginnings of pytest's lines on a test or an import that failed. A pytest that ends otherwise noticed nothing."""
_ROOT = Path(__file__).resolve().parents[2]
_WRONG_TREE, _NO_TESTS = 99, int(pytest.ExitCode.NO_TESTS_COLLECTED)


class CannotTest(Exception):
    """The tests say nothing of mutants: they fail on unchanged code, or ran on another copy."""


@dataclass(frozen=True)
class Examined:
    """How the tests of one mutant went. first_failure: what pytest said of it, one line; empty if none failed."""

    outcome: Outcome
    seconds: float
    first_failure: str


def copied(root: Path, copy: Path) -> Path:
    """A copy of what the tests need of `root`. Returns it."""
    copy.mkdir(parents=True)
    for name in COPIED:
        if (root / name).is_dir():
            shutil.copytree(root / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(root / name, copy / name)
    return copy


class Tree:
    """A copy of the sources and tests of `root` in which one file at a time is changed. One thread may use it."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._copy, self._output = copied(root, folder / "tree"), folder / "output.txt"
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload(_SLOW_IMPORTS)
        self._leader: int | None = None

    def unchanged(self, groups: Sequence[Sequence[Path]]) -> float:
        """Seconds that the tests take on unchanged code. CannotTest if they do not pass."""
        tested = self._run(groups, limit_s=_LONGEST_S)
        if tested.outcome != "survived":
            raise CannotTest(f"{groups[0][0].parent}: {tested.outcome} without any mutant: {tested.first_failure}")
        return tested.seconds

    def test(self, file: Path, code: str, groups: Sequence[Sequence[Path]], *, limit_s: float) -> Examined:
        """The tests, group by group up to the first failure, with `file` (relative to the root) replaced by `code`."""
        changed = self._copy / file
        original = changed.read_text(encoding="utf-8")
        try:
            self._write(changed, code)
            return self._run(groups, limit_s=limit_s)
        finally:
            self._write(changed, original)

    def stop(self) -> None:
        """Ends the tests that another thread is running."""
        _end_group(self._leader)

    def _write(self, file: Path, code: str) -> None:
        """Bytecode is known by size and second, which two mutants may share."""
        file.write_text(code, encoding="utf-8")
        Path(cache_from_source(str(file))).unlink(missing_ok=True)

    def _run(self, groups: Sequence[Sequence[Path]], *, limit_s: float) -> Examined:
        self._output.unlink(missing_ok=True)
        began = time.monotonic()
        process = self._processes.Process(
            target=_run_tests, args=(self._copy, [[str(test) for test in group] for group in groups], self._output)
        )
        process.start()
        self._leader = process.pid
        process.join(limit_s)
        seconds, has_ended = time.monotonic() - began, process.exitcode is not None
        _end_group(process.pid)
        process.kill()
        process.join()
        self._leader = None
        if not has_ended:
            return Examined("timed out", seconds, "")
        output = self._output.read_text(encoding="utf-8", errors="replace") if self._output.exists() else ""
        if not output or process.exitcode in (_WRONG_TREE, _NO_TESTS):
            raise CannotTest(f"exit code {process.exitcode}, need tests of {self._copy}: {output[-300:]}")
        failures = [line[:300] for line in output.splitlines() if line.startswith(_NOTICED)]
        if failures or process.exitcode is None or process.exitcode < 0:  # below 0: a signal ended the process
            return Examined("killed", seconds, (failures or [f"signal {process.exitcode}"])[-1])
        return Examined("survived", seconds, "")


def _run_tests(copy: Path, groups: list[list[str]], output: Path) -> None:
    """In the process of one mutant, forked from one that has torch imported already."""
    os.setsid()
    opened = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(opened, 1)
    os.dup2(opened, 2)
    os.write(1, b"began\n")  # without it the process died of something that is no mutant
    os.chdir(copy)
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() not in (_ROOT, _ROOT / "benchmarks")]
    os.environ["PYTHONPATH"] = str(copy / "platform")
    sys.dont_write_bytecode = False  # the next mutant then compiles one file and not all
    options = [
        "-x", "-q", "--tb=line", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:anyio", "--hypothesis-seed=0",
        "-W", "ignore::pytest.PytestAssertRewriteWarning",  # of a library that was imported before
        f"--basetemp={copy}/temporary",
        # the process that it spawns would look for `mutation.run`, which this copy does not have
        "--deselect=tests/api/test_losses_in_own_loops.py::test_losses_are_sent_to_a_process",
    ]
    code = next((code for group in groups if (code := int(pytest.main([*options, *group])))), 0)
    loaded = getattr(sys.modules.get("vsetune"), "__file__", None)
    if loaded and not Path(loaded).is_relative_to(copy):
        print(f"vsetune was loaded from {loaded}")
        code = _WRONG_TREE
    sys.stdout.flush()
    os._exit(code)


def _end_group(leader: int | None) -> None:
    """The tests and every process they started; none is left when they ended as they should."""
    if leader is not None:
        with suppress(ProcessLookupError):
            os.killpg(leader, signal.SIGKILL)
