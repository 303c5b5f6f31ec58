"""`vsetune nightly bisect`: the search, the pairs that outvote a noisy machine, and git below it."""

from __future__ import annotations

import math
import venv
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from git_folders import committed, git
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from vsetune.errors import VsetuneError
from vsetune.nightly import messages
from vsetune.nightly.bisecting import (
    MOST_PAIRS,
    RECALLS_OF,
    CannotRun,
    Losses,
    LossJudge,
    NoDifference,
    Pair,
    PairedJudge,
    Tried,
    bisect,
    differs,
    first_difference,
    shift_of,
)
from vsetune.nightly.blaming import Reruns
from vsetune.nightly.night import BY_NAME
from vsetune.nightly.revisions import Commit, Repository

EPOCH_TIME, BEST = BY_NAME["epoch_time"], BY_NAME["best_m_recall"]


def commits(count: int) -> list[Commit]:
    return [Commit(f"{number:040}", f"change {number}", "Ann", "2026-11-22") for number in range(count)]


def losses_since(first_bad: int, broken: set[int], seen: list[int]) -> Callable[[Commit], Losses]:
    """Losses that change with a commit; `broken` ones cannot run."""

    def run(commit: Commit) -> Losses:
        number = int(commit.hash)
        seen.append(number)
        if number in broken:
            raise CannotRun(f"{commit.short}: exit code 1: ImportError")
        return {"a.b": [1.0, 0.5 if number < first_bad else 0.25]}

    return run


def quiet(tried: Tried, left: int) -> None:
    assert left >= 1


@settings(max_examples=200, deadline=None)
@given(data=st.data(), count=st.integers(2, 40))
def test_the_commit_is_found_or_it_is_among_those_that_cannot_be_told_apart(data: st.DataObject, count: int) -> None:
    first_bad = data.draw(st.integers(1, count - 1))
    broken = data.draw(st.sets(st.integers(1, count - 2))) if count > 2 else set()
    history, seen = commits(count), []
    found = bisect(history[0], history[1:], LossJudge(losses_since(first_bad, broken, seen)), quiet)
    suspects = [int(commit.hash) for commit in found.suspects]
    assert first_bad in suspects
    assert set(suspects[:-1]) <= broken
    assert sorted(seen) == sorted(set(seen)), "no revision is measured twice"
    if not broken:
        assert suspects == [first_bad]
        assert len(found.tried) <= math.ceil(math.log2(count))


def test_revisions_that_cannot_run_are_skipped() -> None:
    history = commits(6)
    found = bisect(history[0], history[1:], LossJudge(losses_since(4, {2, 3}, [])), quiet)
    assert [commit.subject for commit in found.suspects] == ["change 2", "change 3", "change 4"]
    assert {tried.text for tried in found.tried if tried.side == "skipped"} == {
        f"{history[2].short}: exit code 1: ImportError", f"{history[3].short}: exit code 1: ImportError",
    }
    assert found.bad.text == "a.b: loss of step 2 is 0.25 instead of 0.5"


def test_recalls_that_differ_after_equal_losses_are_a_difference_and_older_revisions_have_none() -> None:
    losses = {"a.b": [1.0, 0.5]}
    good, off = ({**losses, f"{RECALLS_OF}a.b": [12.5, recall]} for recall in (25.0, 24.0))
    assert first_difference(good, off) == "recalls of a.b: number 2 is 24.0 instead of 25.0"
    assert first_difference(good, losses) is None
    assert first_difference(losses, good) is None


def test_ends_that_cannot_run_or_have_the_same_bits_end_the_search() -> None:
    history = commits(3)
    with pytest.raises(CannotRun, match="ImportError"):
        bisect(history[0], history[1:], LossJudge(losses_since(1, {2}, [])), quiet)
    with refused(messages.SAME_BITS, by=NoDifference):
        bisect(history[0], history[1:], LossJudge(losses_since(9, set(), [])), quiet)


def noisy(slower: float, first_bad: int, noise: float, seed: int) -> Callable[[Commit, Commit, int], Pair]:
    """Times on a machine that drifts by half over the search, with noise of its own in every run."""
    random, runs = np.random.default_rng(seed), [0]

    def time(commit: Commit) -> float:
        runs[0] += 1
        drift = 1 + 0.5 * math.sin(runs[0] / 25)
        return drift * (1 + slower * (int(commit.hash) >= first_bad)) * math.exp(noise * random.standard_normal())

    return lambda good, commit, number: Pair(time(good), time(commit))


@pytest.mark.parametrize("seed", range(5))
def test_a_slower_step_is_found_on_a_machine_that_drifts(seed: int) -> None:
    history = commits(33)
    judge = PairedJudge(EPOCH_TIME, 0.05, noisy(0.2, 21, 0.02, seed))
    found = bisect(history[0], history[1:], judge, quiet)
    assert [int(commit.hash) for commit in found.suspects] == [21]


def test_false_findings_are_rare_where_nothing_changed() -> None:
    history, found = commits(9), 0
    for seed in range(100):
        try:
            bisect(history[0], history[1:], PairedJudge(EPOCH_TIME, 0.05, noisy(0.0, 99, 0.03, seed)), quiet)
            found += 1
        except NoDifference:
            continue
    assert found <= 3


@pytest.mark.parametrize(("fewest", "taken"), [(1, 3), (3, 3), (12, 12), (20, 20), (50, 20)])
def test_at_least_three_pairs_and_at_most_twenty_are_taken_whatever_is_asked_for(fewest: int, taken: int) -> None:
    history = commits(2)
    judge = PairedJudge(EPOCH_TIME, 0.05, noisy(0.2, 1, 0.001, 3), fewest=fewest)
    bisect(history[0], history[1:], judge, quiet)
    assert len(judge.known[history[1].hash]) == taken
    judge = PairedJudge(EPOCH_TIME, 0.05, noisy(0.2, 1, 0.30, 3))
    with refused(messages.TOO_NOISY, pairs=20, by=NoDifference):
        bisect(history[0], history[1:], judge, quiet)
    assert len(judge.known[history[1].hash]) == MOST_PAIRS


def test_a_difference_smaller_than_half_of_what_matters_is_none() -> None:
    pairs = [Pair(1.0, 1.01), Pair(2.0, 2.02), Pair(1.5, 1.515)]
    assert differs(pairs, EPOCH_TIME, 0.05) is False
    assert differs(pairs, EPOCH_TIME, 0.01) is True
    assert shift_of(pairs, EPOCH_TIME).size == pytest.approx(math.log(1.01))


def test_quality_is_compared_seed_by_seed() -> None:
    pairs = [Pair(40.0, 38.0), Pair(50.0, 48.1), Pair(30.0, 27.9)]
    assert differs(pairs, BEST, 1.0) is True
    assert shift_of(pairs, BEST).size == pytest.approx(-2.0)


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, -1.0])
def test_a_number_that_is_none_never_counts(value: float) -> None:
    with pytest.raises(ValueError, match="epoch_time: got"):
        shift_of([Pair(1.0, value)], EPOCH_TIME)


# with git

PROGRAM = """\
import json, sys
LOSSES = [1.0, 2.0]
if "--first-losses" in sys.argv:
    print("a word before")
    print(json.dumps({"a.b": {"losses": LOSSES}}))
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Six commits of a program that prints losses; the fourth changes them, the fifth cannot run."""
    root = tmp_path / "repository"
    (root / "platform" / "vsetune").mkdir(parents=True)
    git(root, "init", "--quiet", "--initial-branch=main")
    (root / "pyproject.toml").write_text('[project]\ndependencies = ["numpy"]\n')
    (root / "platform" / "vsetune" / "__init__.py").write_text("")
    broken = PROGRAM.replace("import json", "import no_such_module")
    changed = PROGRAM.replace("2.0", "2.5")
    for number, text in enumerate([PROGRAM, PROGRAM, PROGRAM, changed, broken, changed]):
        committed(root, "platform/vsetune/probe.py", f"{text}# {number}\n", f"Change {number}")
    return root


@pytest.fixture
def known(repository: Path) -> Repository:
    return Repository(repository / "platform" / "vsetune")


def revisions(root: Path) -> Sequence[str]:
    return git(root, "rev-list", "--reverse", "HEAD").split()


def test_a_real_history_is_searched_in_worktrees_that_are_gone_afterwards(
    repository: Path, known: Repository, tmp_path: Path
) -> None:
    first, *_, last = revisions(repository)
    lines: list[str] = []
    reruns = Reruns(known, tmp_path / "cache", home=None, say=lines.append)
    with reruns.opened():
        judge = LossJudge(
            lambda commit: {"a.b": reruns.json_of(commit, "vsetune.probe", ["--first-losses"])["a.b"]["losses"]}
        )
        found = bisect(known.commit(first), known.between(first, last), judge, quiet)
        assert git(repository, "worktree", "list").count("\n") > 0
    assert [commit.subject for commit in found.suspects] == ["Change 3"]
    assert found.suspects[0].author == "Ann"
    assert git(repository, "worktree", "list").count("\n") == 0
    assert git(repository, "status", "--porcelain") == ""
    assert lines == []


def test_what_a_killed_search_left_is_removed(repository: Path, known: Repository, tmp_path: Path) -> None:
    tree = tmp_path / "cache" / "trees" / "left"
    known.add_tree("HEAD", tree)
    with Reruns(known, tmp_path / "cache", home=None, say=print).opened():
        assert not tree.exists()
        assert git(repository, "worktree", "list").count("\n") == 0


def test_why_a_revision_cannot_run_is_one_line(repository: Path, known: Repository, tmp_path: Path) -> None:
    reruns = Reruns(known, tmp_path / "cache", home=None, say=print)
    broken, good = (known.commit(revisions(repository)[number]) for number in (4, 5))
    with reruns.opened():
        with pytest.raises(CannotRun, match="No module named 'no_such_module'"):
            reruns.json_of(broken, "vsetune.probe", ["--first-losses"])
        with refused(messages.NO_MODULE, module="vsetune.probe_of_later", by=CannotRun):
            reruns.json_of(good, "vsetune.probe_of_later", [])
        with refused(messages.NO_JSON, revision=good.short, by=CannotRun):
            reruns.json_of(good, "vsetune.probe", [])


def test_only_required_packages_decide_whether_packages_differ(repository: Path, known: Repository) -> None:
    here = known.dependencies(None)
    (repository / "pyproject.toml").write_text('[project]\ndependencies = ["numpy"]\n[tool.ruff]\nline-length = 99\n')
    assert known.dependencies(None) == here == known.dependencies("HEAD")
    (repository / "constraints.txt").write_text("numpy==2.0\n")
    assert known.dependencies(None) != here


def asking_for(packages: str, repository: Path) -> Commit:
    """A commit that needs other packages than what lies in the working tree."""
    project = repository / "pyproject.toml"
    project.write_text(f"[project]\nname = 'vsetune'\nversion = '1'\ndependencies = {packages}\n")
    program = "import json, sys\nprint(json.dumps({'prefix': sys.prefix}))\n"
    (repository / "platform" / "vsetune" / "probe.py").write_text(program)
    git(repository, "commit", "--quiet", "--all", "--message=Asks for other packages")
    project.write_text("[project]\nname = 'vsetune'\nversion = '1'\ndependencies = []\n")
    return (known := Repository(repository / "platform" / "vsetune")).commit(known.resolve("HEAD", named="--bad"))


def test_a_revision_that_asks_for_other_packages_runs_in_the_environment_kept_for_them(
    repository: Path, known: Repository, tmp_path: Path
) -> None:
    commit = asking_for("['one', 'two']", repository)
    kept = tmp_path / "cache" / "environments" / known.dependencies(commit.hash)
    venv.create(kept, symlinks=True)
    (kept / "ready").touch()
    with Reruns(known, tmp_path / "cache" / "one", home=None, say=print).opened() as reruns:
        assert reruns.json_of(commit, "vsetune.probe", [])["prefix"] == str(kept)


@pytest.mark.slow  # pip is put into an environment
def test_packages_that_cannot_be_installed(
    repository: Path, known: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    commit, lines = asking_for("['no-such-package-at-all']", repository), list[str]()
    reruns = Reruns(known, tmp_path / "cache" / "one", home=None, say=lines.append)
    with reruns.opened(), refused(messages.COMMAND_FAILED, command="pip install", by=CannotRun):
        reruns.json_of(commit, "vsetune.probe", [])
    assert [f"{commit.short} asks for other packages" in line for line in lines] == [True]


def test_bad_revisions_are_refused(
    repository: Path, known: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, *_ = revisions(repository)
    for text in ("no-such", "", "--all", "HEAD~99", "main:platform"):
        with refused(messages.NO_REVISION, named="--good", got=text):
            known.resolve(text, named="--good")
    with refused(messages.SAME_REVISION):
        known.between(first, first)
    with refused(messages.NOT_AN_ANCESTOR, good=second[:10], bad=first[:10]):
        known.between(second, first)
    with refused(messages.NOT_A_CLONE, folder=tmp_path):
        Repository(tmp_path)
    known.require_clean()
    (repository / "pyproject.toml").write_text("")
    with refused(messages.EDITED, files="pyproject.toml"):
        known.require_clean()
    with refused(messages.GIT_FAILED, by=VsetuneError):
        known.commit("no-such")
    monkeypatch.setenv("PATH", "/nowhere")
    with refused(messages.NO_GIT):
        Repository(tmp_path)
