"""`vsetune nightly bisect`: from a sweep and a measure to the commit at fault, by running older revisions."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsetune.config.study.cells import resolve_cells
from vsetune.errors import DataError, StudyConflict, UsageError, one_line
from vsetune.nightly import messages
from vsetune.nightly.bisecting import (
    RECALLS_OF,
    Bisected,
    CannotRun,
    Losses,
    LossJudge,
    Pair,
    PairedJudge,
    Tried,
    bisect,
)
from vsetune.nightly.history import History
from vsetune.nightly.night import ALL_CELLS, BY_NAME, FIRST_LOSSES, STEP_TIMES, Night, ReportRow, known_option
from vsetune.nightly.nightly_spec import NightlySpec
from vsetune.nightly.revisions import Commit, Repository
from vsetune.storage.hashes import fingerprint_of
from vsetune.storage.locks import take_lock
from vsetune.storage.paths import HOME_VARIABLE
from vsetune.storage.whole_files import make_folder, read_json, write_json

_MODULE = "vsetune.nightly.measure_once"
_REPEATABLE = {"best_m_recall", "epochs_to_target", "m_recall_area"}
"""Measures that are equal for a revision and a seed whenever measured on one machine, so that one run is enough."""
_ALARMS = ("regression", "changed")
_EDITED, _HEAD = "+changes", "HEAD"


@dataclass(frozen=True)
class Question:
    """The request. cell, good, bad: None is chosen from the history. fewest: least pairs of runs of a revision."""

    file: Path
    measure: str
    cell: str | None
    good: str | None
    bad: str | None
    fewest: int


@dataclass(frozen=True)
class Answerable:
    """A question with every choice made. after: commits after `good`, oldest first; the last one is bad. cell: None is
    every cell, allowed for first losses only."""

    question: Question
    cell: str | None
    good: Commit
    after: Sequence[Commit]


def answerable(question: Question, spec: NightlySpec, history: History, repository: Repository) -> Answerable:
    """Complete a question from the history. UsageError in one line: unknown measure, cell or revision, nothing in the
    history to choose, edited files."""
    known_option("--measure", question.measure, {*BY_NAME, FIRST_LOSSES})
    nights = history.nights()
    alarm = _alarm(nights, history, question)
    cell = _known_cell(question.cell or (alarm.cell if alarm else None), spec, question)
    bad_text, bad_from = _bad(question, nights)
    if bad_text == _HEAD and question.bad is None:
        repository.require_clean()
    bad = repository.resolve(bad_text, named=bad_from)
    good_text, good_from = _good(question, nights, history, alarm)
    good = repository.resolve(good_text, named=good_from)
    return Answerable(question, cell, repository.commit(good), repository.between(good, bad))


def search(
    asked: Answerable, spec: NightlySpec, folder: Path, repository: Repository, *, say: Callable[[str], None],
    tell: Callable[[Tried, int], None],
) -> Bisected:
    """Measure revisions until one commit is left. folder: of all searches of this sweep.

    StudyConflict: another process runs the same search. NoDifference: the two ends are equal. CannotRun: one of them
    gives no number.
    """
    place = folder / _key(asked)
    make_folder(place)
    try:
        lock = take_lock(place / "lock", wait_s=0)
    except BlockingIOError:
        raise StudyConflict(messages.BUSY(what=place)) from None
    homes = place / "homes" if spec.data.scenes is not None else None
    with lock, Reruns(repository, place, home=homes, say=say).opened() as reruns:
        return bisect(asked.good, asked.after, _judge(asked, spec, reruns, Notes(place / "notes.json"), say), tell)


class Notes:
    """Measurements, written after every run: pairs by revision, values of the good revision by round, losses."""

    def __init__(self, file: Path) -> None:
        """DataError when the file is damaged."""
        self._file, remedy = file, "remove it, the search then measures again"
        try:
            plain = read_json(file) or {}
            self.pairs: dict[str, list[Pair]] = {
                name: [Pair(*each) for each in pairs] for name, pairs in plain.get("pairs", {}).items()
            }
            self.references: dict[str, float] = dict(plain.get("references", {}))
            self.losses: dict[str, dict[str, list[float]]] = dict(plain.get("losses", {}))
        except DataError as error:
            raise DataError(error.problem.worded(f"{error}; {remedy}")) from error
        except (AttributeError, TypeError, ValueError) as error:
            raise DataError(messages.UNREADABLE(file=file, reason=one_line(error), remedy=remedy)) from error

    def keep(self) -> None:
        """Write the file. StorageError when it cannot be written."""
        pairs = {name: [[pair.reference, pair.value] for pair in each] for name, each in self.pairs.items()}
        write_json(self._file, {"pairs": pairs, "references": self.references, "losses": self.losses}, durable=False)


def _judge(
    asked: Answerable, spec: NightlySpec, reruns: Reruns, notes: Notes, say: Callable[[str], None]
) -> LossJudge | PairedJudge:
    file, cell = asked.question.file.absolute(), asked.cell
    if asked.question.measure == FIRST_LOSSES:
        return LossJudge(lambda commit: _first_losses(reruns, notes, commit, file, cell))
    assert cell is not None, "a measure is one of a cell"
    measure = BY_NAME[asked.question.measure]

    def value(commit: Commit, number: int) -> float:
        if measure.name in STEP_TIMES:  # takes seconds, without training a whole trial
            values = reruns.json_of(commit, _MODULE, [str(file), "--first-losses", "--cell", cell]).get(cell, {})
        else:
            words = [str(file), "--cell", cell, "--seeds", str(number)]
            values = reruns.json_of(commit, _MODULE, words).get("values", {})
        if measure.name not in values:
            raise CannotRun(messages.NO_VALUE(revision=commit.short, measure=measure.name, cell=cell))
        return float(values[measure.name])

    def reference(good: Commit, number: int) -> float:
        if measure.name not in _REPEATABLE:
            return value(good, number)
        if str(number) not in notes.references:
            notes.references[str(number)] = value(good, number)
            notes.keep()
        return notes.references[str(number)]

    def take(good: Commit, commit: Commit, number: int) -> Pair:
        if number % 2:  # the order alternates, so that a drift of the machine cancels out
            other = value(commit, number)
            pair = Pair(reference(good, number), other)
        else:
            pair = Pair(reference(good, number), value(commit, number))
        notes.pairs = {**judge.known, commit.hash: [*judge.known.get(commit.hash, []), pair]}
        notes.keep()
        say(f"{commit.short}, run {number + 1}: {pair.value:.5g} against {pair.reference:.5g} of {good.short}")
        return pair

    judge = PairedJudge(measure, spec.tolerances.smallest_change_of(measure), take, notes.pairs, asked.question.fewest)
    return judge


def _first_losses(reruns: Reruns, notes: Notes, commit: Commit, file: Path, cell: str | None) -> Losses:
    if commit.hash not in notes.losses:
        words = [str(file), "--first-losses", *(["--cell", cell] if cell else [])]
        found: Mapping[str, Mapping[str, Any]] = reruns.json_of(commit, _MODULE, words)
        for name, each in found.items():
            if "losses" not in each:
                reason = each.get("problem", "no losses")
                raise CannotRun(messages.NO_LOSSES(revision=commit.short, cell=name, reason=reason))
        notes.losses[commit.hash] = {name: list(each["losses"]) for name, each in found.items()} | {
            f"{RECALLS_OF}{name}": list(each["recalls"].values()) for name, each in found.items() if each.get("recalls")
        }
        notes.keep()
    return notes.losses[commit.hash]


def _key(asked: Answerable) -> str:
    """Folder name of one search; another file, measure, cell, range or machine is another search."""
    return fingerprint_of({
        "file": asked.question.file.read_text(encoding="utf-8"), "measure": asked.question.measure, "cell": asked.cell,
        "good": asked.good.hash, "bad": asked.after[-1].hash, "machine": platform.node(),
    })


def _known_cell(cell: str | None, spec: NightlySpec, question: Question) -> str | None:
    """The cell, checked; None, for a measure, becomes the first cell. UsageError for a cell that the sweep lacks."""
    names = [each.name for each in resolve_cells(spec.study("bisect", [0]), where=str(question.file))]
    if cell in (None, ALL_CELLS):
        return None if question.measure == FIRST_LOSSES else names[0]
    return known_option("--cell", cell, names)


def _alarm(nights: Sequence[Night], history: History, question: Question) -> ReportRow | None:
    """The row of the newest report that has the alarm in question. Cells come before the mean over all cells, then the
    largest change."""
    report = history.report(nights[-1].date) if nights else None
    rows = [
        row for row in (report.rows if report else ())
        if row.verdict in _ALARMS and row.measure_name == question.measure and question.cell in (None, row.cell)
    ]
    return max(rows, key=lambda row: (row.cell != ALL_CELLS, abs(row.change or 0.0)), default=None)


def _bad(question: Question, nights: Sequence[Night]) -> tuple[str, str]:
    """(revision, its origin): as given, that of the newest night, or HEAD."""
    if question.bad is not None:
        return question.bad, "--bad"
    if nights and _is_commit(nights[-1].revision):
        return nights[-1].revision, f"the night of {nights[-1].date} (name another with --bad)"
    return _HEAD, _HEAD


def _good(
    question: Question, nights: Sequence[Night], history: History, alarm: ReportRow | None
) -> tuple[str, str]:
    """(revision, its origin): as given, or that of the last night before the change began.

    Without an alarm in the newest report, that of the last night whose report is quiet. UsageError when there is none.
    """
    if question.good is not None:
        return question.good, "--good"
    usable = [night for night in nights[:-1] if _is_commit(night.revision) and night.state != "failed"]
    if alarm is not None and alarm.since is not None:
        usable = [night for night in usable if night.date < alarm.since]
    else:
        reports = {night.date: history.report(night.date) for night in usable}
        usable = [night for night in usable if (report := reports[night.date]) and report.exit_code == 0]
    if not usable:
        raise UsageError(messages.NO_GOOD_NIGHT())
    return usable[-1].revision, f"the night of {usable[-1].date} (name another with --good)"


def _is_commit(revision: str) -> bool:
    return not revision.endswith(_EDITED) and revision != "unknown"


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
            raise CannotRun(messages.NO_MODULE(revision=commit.short, module=module))
        environment = {**os.environ, "PYTHONPATH": str(source)}
        if self._home is not None:
            environment[HOME_VARIABLE] = str(self._home / commit.short)
        command = [self._python(commit, tree), "-m", module, *words]
        printed = _output(commit, module, command, _LONGEST_RUN_S, cwd=tree, env=environment)
        try:
            return json.loads(printed[printed.index("{"):])
        except ValueError as error:
            last = _last_line(printed)
            raise CannotRun(messages.NO_JSON(revision=commit.short, module=module, printed=last)) from error

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
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *pins, str(tree)]
        _output(commit, "pip install", command, _LONGEST_INSTALL_S)
        (folder / _READY).touch()
        return str(python)


def _output(commit: Commit, what: str, command: Sequence[str], most_s: float, **options: Any) -> str:
    """The output of a command for a revision. CannotRun, in one line, when it fails or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=most_s, check=False, **options)
    except subprocess.TimeoutExpired as error:
        hours = f"{most_s / 3600:g}"
        raise CannotRun(messages.RAN_TOO_LONG(revision=commit.short, command=what, hours=hours)) from error
    if done.returncode != 0:
        raise CannotRun(messages.COMMAND_FAILED(
            revision=commit.short, command=what, exit_code=done.returncode, reason=_last_line(done.stderr)
        ))
    return str(done.stdout)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:_LONGEST_REASON] if lines else "no output"
