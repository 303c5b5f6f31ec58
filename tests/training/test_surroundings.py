"""Random state, device and the revision of the code."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from refusals import refused

from vsetune.config.study.training import TrainingSpec
from vsetune.errors import ConfigError
from vsetune.training.device import choose_device, effective_precision, product_precision, tower_precision, use_threads
from vsetune.training.random_state import RandomState, undisturbed
from vsetune.version import git_revision

CPU = torch.device("cpu")


def draw() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def test_a_random_state_goes_on_where_it_paused_and_keeps_out_of_the_way() -> None:
    straight, paused = RandomState(7, CPU), RandomState(7, CPU)
    with straight.active():
        expected = [draw(), draw()]
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    with paused.active():
        first = draw()
    outside = draw()
    with paused.active():
        second = draw()
    assert [first, second] == expected
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    assert draw() == outside


def test_a_saved_random_state_survives_a_checkpoint(tmp_path: Path) -> None:
    state = RandomState(7, CPU)
    with state.active():
        np.random.randn(), draw()  # leaves half of a pair of Gaussians behind
    torch.save(state.state_dict(), tmp_path / "state")
    other = RandomState(8, CPU)
    other.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    with state.active():
        expected = np.random.randn(), draw()
    with other.active():
        assert (np.random.randn(), draw()) == expected


def test_draws_inside_undisturbed_leave_no_trace() -> None:
    torch.manual_seed(3)
    expected = float(torch.rand(()))
    torch.manual_seed(3)
    with undisturbed(CPU):
        torch.rand(5)
    assert float(torch.rand(())) == expected


def test_auto_takes_what_the_machine_has() -> None:
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("name", ["tpu", "cuda:99", "meta"])
def test_a_device_that_is_not_here_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"device: got '{name}'"):
        choose_device(name)


def test_threads_are_limited_and_none_leaves_them_alone() -> None:
    before = torch.get_num_threads()
    use_threads(None)
    assert torch.get_num_threads() == before
    use_threads(1)
    assert torch.get_num_threads() == 1
    use_threads(before)
    with refused("VSE-T005", by=ConfigError, threads=0):
        use_threads(0)


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_coarse_numbers_are_for_gpus_only(precision: Any) -> None:
    training = TrainingSpec(precision=precision)
    assert effective_precision(training, CPU) == "float32"
    assert effective_precision(training, torch.device("cuda")) == precision
    with product_precision(training, CPU), tower_precision(training, CPU):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


def test_tf32_is_allowed_within_a_step_that_asks_for_it_and_nowhere_else() -> None:
    def allowed() -> tuple[bool, bool]:
        return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32

    before, gpu = allowed(), torch.device("cuda")
    try:
        with product_precision(TrainingSpec(precision="tf32"), gpu):
            assert allowed() == (True, True)
        assert allowed() == (False, False)
        for precision in ("float32", "bfloat16"):
            with product_precision(TrainingSpec(precision=precision), gpu):
                assert allowed() == (False, False)
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@pytest.mark.parametrize(("told", "revision"), [
    ("0123456789abcdef", "0123456789abcdef"), ("0123456+changes", "0123456+changes"), ("main; rm", "unknown"),
    ("", "unknown"),
])
def test_code_without_a_repository_is_of_the_revision_that_its_job_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, revision: str
) -> None:
    monkeypatch.setenv("VSETUNE_REVISION", told)
    assert git_revision(tmp_path) == revision
