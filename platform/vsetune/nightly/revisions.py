"""The git repository of the running code: its commits, and work trees of older ones."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

from vsetune.errors import UsageError, VsetuneError
from vsetune.files.hashes import fingerprint_of

PACKAGE = Path(__file__).resolve().parents[1]

_FIELDS = "%H%x1f%s%x1f%an%x1f%cI"
_DEPENDENCY_FILES = ("pyproject.toml", "constraints.txt")


@dataclass(frozen=True)
class Commit:
    """hash: 40 digits. date: ISO time of the commit."""

    hash: str
    subject: str
    author: str
    date: str

    @property
    def short(self) -> str:
        return self.hash[:10]

    @property
    def text(self) -> str:
        """One line for display."""
        return f"{self.short} {self.subject} ({self.author}, {self.date[:10]})"


class Repository:
    """A git repository. root: its top folder. source: path of the package's parent below it."""

    def __init__(self, package: Path = PACKAGE) -> None:
        """UsageError where git is missing or does not know the files of `package`."""
        if shutil.which("git") is None:
            raise UsageError("git: not found on this machine, so no revisions can be compared; install it")
        top = _git(package, "rev-parse", "--show-toplevel")
        if top is None or not _git(package, "ls-files", "--", "."):
            raise UsageError(
                f"{package}: stands in no git repository, so there are no revisions to compare; run this from a clone "
                "(pip install --editable .)"
            )
        self.root = Path(top)
        self.source = package.resolve().parent.relative_to(self.root.resolve())

    def require_clean(self) -> None:
        """UsageError when tracked files differ from HEAD: edited code belongs to no revision."""
        changed = _git(self.root, "status", "--porcelain", "--untracked-files=no") or ""
        if changed:
            files = [line[3:] for line in changed.splitlines()]
            more = f" and {len(files) - 1} more" if len(files) > 1 else ""
            raise UsageError(
                f"{self.root}: {files[0].strip()}{more} differ from HEAD, and only commits are compared; commit or "
                "stash them, or name the newest commit with --bad"
            )

    def resolve(self, text: str, *, named: str) -> str:
        """The full hash of a revision. named: the option or place it comes from. UsageError for an unknown revision."""
        words = ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{text}^{{commit}}"]
        found = _git(self.root, *words) if text.strip() else None
        if found is None:
            raise UsageError(
                f"{named}: got {text[:60]}, which is no revision of {self.root}; see: git log, or fetch it"
            )
        return found

    def commit(self, revision: str) -> Commit:
        """The commit of a revision. VsetuneError when git fails."""
        return _commit(self._log("-1", revision)[0])

    def between(self, good: str, bad: str) -> list[Commit]:
        """Commits after `good` up to and with `bad`, oldest first, along first parents.

        UsageError when they are the same, or `good` is not an ancestor of `bad`.
        """
        if good == bad:
            raise UsageError(f"--good and --bad: both are {good[:10]}, so there is nothing between them; name others")
        if _git(self.root, "merge-base", "--is-ancestor", good, bad) is None:
            raise UsageError(
                f"--good: {good[:10]} is not an ancestor of {bad[:10]} (--bad), so no commit between them can be at "
                "fault; name an older one"
            )
        return [_commit(line) for line in self._log("--first-parent", "--reverse", f"{good}..{bad}")]

    def dependencies(self, revision: str | None) -> str:
        """A hash of the packages that a revision requires; None is the working tree."""
        texts = {name: self._content(revision, name) for name in _DEPENDENCY_FILES}
        project = _project(texts["pyproject.toml"])
        asked = {key: project.get(key) for key in ("requires-python", "dependencies", "optional-dependencies")}
        return fingerprint_of({"project": asked, "constraints": texts["constraints.txt"]})

    def add_tree(self, revision: str, folder: Path) -> None:
        """Check out a revision as a work tree in `folder`. VsetuneError when git fails."""
        self.remove_tree(folder)
        _require(self.root, "worktree", "add", "--quiet", "--detach", "--force", str(folder), revision)

    def remove_tree(self, folder: Path) -> None:
        """Remove a work tree in any state, from disk and from the repository's list."""
        if folder.exists():
            _git(self.root, "worktree", "remove", "--force", str(folder))
            shutil.rmtree(folder, ignore_errors=True)
        _git(self.root, "worktree", "prune")

    def _content(self, revision: str | None, name: str) -> str:
        if revision is not None:
            return _git(self.root, "show", f"{revision}:{name}") or ""
        file = self.root / name
        return file.read_text(encoding="utf-8").strip("\n") if file.is_file() else ""

    def _log(self, *words: str) -> list[str]:
        return _require(self.root, "log", f"--format={_FIELDS}", *words, "--").splitlines()


def _commit(line: str) -> Commit:
    return Commit(*line.split("\x1f"))


def _project(text: str) -> dict[str, object]:
    try:
        project = tomllib.loads(text).get("project", {})
    except tomllib.TOMLDecodeError:
        return {"broken": text}
    return dict(project)


def _git(folder: Path, *words: str) -> str | None:
    """The output of git; None when it fails."""
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)
    return done.stdout.strip("\n") if done.returncode == 0 else None


def _require(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise VsetuneError(f"git {' '.join(words[:2])}: {reason}")
    return done.stdout.strip("\n")
