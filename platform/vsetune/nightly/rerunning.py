"""Runs a module of an older revision: its files in a git worktree, its packages in a matching environment.

A revision that requires the same packages as the running code is run by this interpreter, with its own files first on
the path. Any other revision gets a separate environment. Revisions with equal requirements share one, which stays on
disk.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vsetune.nightly.bisecting import CannotRun
from vsetune.nightly.revisions import Commit, Repository
from vsetune.storage.paths import HOME_VARIABLE
from vsetune.storage.whole_files import make_folder

_LONGEST_RUN_S = 4 * 3600
_LONGEST_INSTALL_S = 3600
_READY = "ready"
_LONGEST_REASON = 300


class Reruns:
    """Trees and environments below `folder`, which belongs to one process at a time.

    home: folder for the data that revisions make, with a subfolder for each, since a changed recipe makes other data;
    None where the data exist and every revision reads the same. say: called with a line before a long step.
    """

    def __init__(
        self, repository: Repository, folder: Path, *, home: Path | None, say: Callable[[str], None]
    ) -> None:
        self._repository = repository
        self._folder = folder
        self._home = home
        self._say = say
        self._here = repository.dependencies(None)
        self._trees: dict[str, Path] = {}
        self._pythons: dict[str, str] = {}

    @contextmanager
    def opened(self) -> Iterator[Reruns]:
        """Removes trees that a killed process left at its beginning; at its end its own trees, and `home`."""
        trees = self._folder / "trees"
        try:
            for left in sorted(trees.glob("*")):
                self._repository.remove_tree(left)
            make_folder(trees)
            yield self
        finally:
            for tree in self._trees.values():
                self._repository.remove_tree(tree)
            self._trees.clear()
            if self._home is not None:
                shutil.rmtree(self._home, ignore_errors=True)

    def json_of(self, commit: Commit, module: str, words: Sequence[str]) -> Any:
        """The JSON that `python -m module words` of a revision prints. CannotRun, in one line, when it prints none.

        It runs in the revision's own folder; paths among the words must be absolute.
        """
        tree = self._tree(commit)
        source = tree / self._repository.source
        if not source.joinpath(*module.split(".")).with_suffix(".py").is_file():
            raise CannotRun(f"{commit.short}: has no {module} yet")
        environment = {**os.environ, "PYTHONPATH": str(source)}
        if self._home is not None:
            environment[HOME_VARIABLE] = str(self._home / commit.short)
        try:
            done = subprocess.run(
                [self._python(commit, tree), "-m", module, *words], cwd=tree, env=environment, capture_output=True,
                text=True, timeout=_LONGEST_RUN_S, check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise CannotRun(f"{commit.short}: {module} ran longer than {_LONGEST_RUN_S / 3600:g} h") from error
        if done.returncode != 0:
            raise CannotRun(f"{commit.short}: exit code {done.returncode}: {_last_line(done.stderr)}")
        try:
            return json.loads(done.stdout[done.stdout.index("{"):])
        except ValueError as error:
            raise CannotRun(f"{commit.short}: {module} prints no JSON: {_last_line(done.stdout)}") from error

    def _tree(self, commit: Commit) -> Path:
        if commit.hash not in self._trees:
            tree = self._folder / "trees" / commit.short
            self._trees[commit.hash] = tree
            self._repository.add_tree(commit.hash, tree)
        return self._trees[commit.hash]

    def _python(self, commit: Commit, tree: Path) -> str:
        asked = self._repository.dependencies(commit.hash)
        if asked == self._here:
            return sys.executable
        if asked not in self._pythons:
            self._pythons[asked] = self._environment(commit, tree, self._folder.parent / "environments" / asked)
        return self._pythons[asked]

    def _environment(self, commit: Commit, tree: Path, folder: Path) -> str:
        """An interpreter with the packages that a revision requires, created if missing. CannotRun when pip fails."""
        python = folder / "bin" / "python"
        if (folder / _READY).exists():
            return str(python)
        self._say(f"{commit.short} asks for other packages: making an environment for it, which takes minutes")
        shutil.rmtree(folder, ignore_errors=True)
        make_folder(folder.parent)
        venv.create(folder, with_pip=True, symlinks=True)
        constraints = tree / "constraints.txt"
        pins = ["--constraint", str(constraints)] if constraints.is_file() else []
        try:
            done = subprocess.run(
                [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *pins, str(tree)],
                capture_output=True, text=True, timeout=_LONGEST_INSTALL_S, check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise CannotRun(f"{commit.short}: its packages were not installed within an hour") from error
        if done.returncode != 0:
            raise CannotRun(f"{commit.short}: its packages cannot be installed: {_last_line(done.stderr)}")
        (folder / _READY).touch()
        return str(python)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:_LONGEST_REASON] if lines else "without a word"

