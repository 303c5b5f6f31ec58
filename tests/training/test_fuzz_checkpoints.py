"""The files of a trial changed at random: the trial goes on, or one line says what is damaged."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nested_places import places, put

from vsetune.config.study.training import TrialSpec
from vsetune.errors import AttemptError, StaleCheckpoint
from vsetune.records.studies import BEST_FILE
from vsetune.training.attempt import TrainingAttempt
from vsetune.training.checkpoint import CHECKPOINT_FILE, seal_of, set_aside
from vsetune.training.executions import EXECUTIONS_FILE, PROGRESS_FILE

FILES = [CHECKPOINT_FILE, CHECKPOINT_FILE, CHECKPOINT_FILE, BEST_FILE, EXECUTIONS_FILE, PROGRESS_FILE]
Change = Callable[[Path], bool]
"""Changes a folder; True when a state was changed inside, so that only training tells whether it is sound."""

VALUES = st.sampled_from([
    None, True, -1, 0, 1, 3, 10**30, 1.5, float("nan"), float("inf"), "", "a\nb", [], [None], {}, {"step": 1}, (1, 2),
    torch.zeros(0), torch.zeros(3), torch.full((2, 2), float("nan")), torch.zeros(2, dtype=torch.int64),
    torch.zeros(1).expand(1 << 30), torch.zeros(5, dtype=torch.bool), torch.zeros(2, 3, dtype=torch.complex64),
])
TEXTS = st.one_of(
    st.sampled_from(["", "null", "[]", "{}", "[" * 100_000, "NaN", "9" * 5000, '{"number": 1}', "\0" * 50]),
    st.fixed_dictionaries({
        key: st.one_of(st.integers(-2, 5), st.none(), st.floats(), st.just(10**40), st.text(max_size=3))
        for key in ("number", "wasted_pairs", "wasted_seconds")
    }).map(json.dumps),
    st.fixed_dictionaries({
        key: st.one_of(st.integers(-2, 5), st.none(), st.floats(), st.just(10**40), st.text(max_size=3))
        for key in ("number", "pairs", "seconds")
    }).map(json.dumps),
)


@st.composite
def changes(draw: st.DrawFn) -> Change:
    """Bytes, whole files, or parts of the state; most changed states are sealed again."""
    name, other = draw(st.sampled_from(FILES)), draw(st.sampled_from(FILES))
    kind = draw(st.sampled_from(["flip", "flip", "cut", "insert", "swap", "text", "state", "state", "state", "gone"]))
    where, flips = draw(st.lists(st.floats(0, 1), min_size=1, max_size=5)), draw(st.binary(min_size=1, max_size=9))
    text, value, number = draw(TEXTS), draw(VALUES), draw(st.integers(0, 10_000))
    is_sealed, remove = draw(st.integers(0, 4)) > 0, draw(st.integers(0, 3)) == 0

    def change(folder: Path) -> bool:
        path = folder / (CHECKPOINT_FILE if kind == "state" else name)
        content = bytearray(path.read_bytes())
        at = [min(int(each * len(content)), len(content) - 1) for each in where]
        if kind == "flip":
            for place in at:
                content[place] ^= flips[0] or 1
        elif kind == "cut":
            del content[at[0] : (at[1] if len(at) > 1 else None)]
        elif kind == "insert":
            content[at[0] : at[0]] = flips
        elif kind == "swap":
            content = bytearray((folder / other).read_bytes())
        elif kind == "text":
            content = bytearray(text.encode())
        elif kind == "gone":
            path.unlink()
            return False
        else:
            saved = torch.load(path, weights_only=True)
            known = places(saved)
            saved = put(saved, known[number % len(known)], value, remove=remove)
            stream = io.BytesIO()
            torch.save(saved, stream)
            content = bytearray(stream.getvalue()) + (seal_of(stream.getvalue()) if is_sealed else b"")
        path.write_bytes(content)
        return kind == "state"

    return change


@pytest.fixture(scope="module")
def trial(make_trial: Callable[..., TrialSpec]) -> TrialSpec:
    return make_trial(validate_every_steps=2, learning_rate=0.01)


@pytest.fixture(scope="module")
def first_folder(trial: TrialSpec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("first") / "trial"
    first = TrainingAttempt(trial, folder, device="cpu", threads=None, checkpoint_share=1e-9)
    first.advance()
    of_the_checkpoint = (folder / BEST_FILE).read_bytes()
    while (folder / BEST_FILE).read_bytes() == of_the_checkpoint:  # until a validation without a checkpoint is the best
        first.advance()
    first.close()
    return folder


@pytest.fixture
def fuzz(trial: TrialSpec, first_folder: Path, tmp_path: Path) -> Callable[[int], None]:
    """fuzz(N): the trial continues from N changed folders, or StaleCheckpoint says in one line why not."""

    def run(examples: int) -> None:
        refused = 0

        @settings(
            max_examples=examples, deadline=timedelta(seconds=20), derandomize=True, database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(changes())
        def one(change: Change) -> None:
            nonlocal refused
            folder = Path(shutil.copytree(first_folder, tmp_path / "copy"))
            try:
                is_inside = change(folder)
                refused += _is_refused(trial, folder, trains=is_inside)
            finally:
                shutil.rmtree(folder)

        one()
        assert 0 < refused < examples

    return run


def _is_refused(trial: TrialSpec, folder: Path, *, trains: bool) -> bool:
    try:
        attempt = TrainingAttempt(trial, folder, device="cpu", threads=None)
    except StaleCheckpoint as error:
        told = str(error)
    else:
        with closing(attempt), suppress(AttemptError):  # a number beyond reason in a state that was sealed by hand
            if trains and not attempt.is_finished:
                attempt.advance()
        return False
    assert "\n" not in told
    assert set_aside(folder, told)
    return True


def test_changed_files_of_a_trial_are_sound_or_one_line(fuzz: Callable[[int], None]) -> None:
    fuzz(60)


@pytest.mark.slow
def test_thousands_of_changed_files_of_a_trial_are_sound_or_one_line(fuzz: Callable[[int], None]) -> None:
    fuzz(2000)
