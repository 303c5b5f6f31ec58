"""`make gpu-check`: what it needs, what it compares, and what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gpu_check
import pytest
import torch

from gpu import attempts, page, sharing
from gpu.arithmetic import CoarseProducts, DrawnOnTheCpu, rounded
from gpu.cases import every_case, published_network, small_network, trial_of
from gpu.curves import FACTOR, Compared, compare
from gpu.made_data import Made, make_data
from gpu.rates import opened
from vsetune.config.component_specs import LOSSES, NETWORKS
from vsetune.training.batches import TrainingBatches

ROOT = Path(gpu_check.__file__).parents[1]
WHEELS = {
    "numpy": ["numpy"], "pydantic": ["pydantic", "pydantic_core", "annotated_types", "typing_inspection"],
    "pyyaml": ["yaml", "_yaml"], "webdataset": ["webdataset", "braceexpand"], "pillow": ["PIL"],
    "rich": ["rich", "pygments", "markdown_it", "mdurl"], "safetensors": ["safetensors"], "scipy": ["scipy"],
}
"""Packages that the check needs beside torch, and what they bring along."""
OF_TORCH = ["torch", "torchgen", "functorch", "typing_extensions", "sympy", "mpmath", "networkx", "filelock", "fsspec",
            "jinja2", "markupsafe", "setuptools", "packaging", "_distutils_hack", "pkg_resources", "triton"]
ONLY_ALLOWED = """
import sys
from importlib.machinery import PathFinder
class Present(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        top = name.partition('.')[0]
        is_there = top in allowed or top in sys.stdlib_module_names or top.startswith('_')
        return super().find_spec(name, path, target) if is_there else None
allowed = set(sys.argv.pop(1).split(','))
sys.meta_path[:] = [Present if finder is PathFinder else finder for finder in sys.meta_path]
import runpy
runpy.run_path(sys.argv[0], run_name='__main__')
"""


def checked(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The check without a GPU, where only torch and what its header names can be imported."""
    allowed = ["vsetune", "gpu", *OF_TORCH, *(name for names in WHEELS.values() for name in names)]
    script = ROOT / "benchmarks" / "gpu_check.py"
    code = f"import sys; sys.argv[0] = {str(script)!r}; sys.path.insert(0, {str(script.parent)!r})\n{ONLY_ALLOWED}"
    return subprocess.run(
        [sys.executable, "-c", code, ",".join(allowed), "--device", "cpu", "--sizes", "small", *arguments],
        env={"PYTHONPATH": str(ROOT / "platform"), "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False,
    )


def test_without_ray_and_a_store_it_finds_that_no_loss_waits() -> None:
    assert [wheel for wheel in WHEELS if wheel not in (gpu_check.__doc__ or "")] == []
    done = checked("--only", "waits", "--cases", "vsepp.")
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| vsepp.")]
    assert len(rows) == sum(name.startswith("vsepp.") for name in every_case())
    assert [row for row in rows if row.split("|")[2].strip() != "0"] == []


def test_a_step_waits_nowhere_but_in_tags() -> None:
    """Which sentences of TAGS are scored follows from what it writes. In a process of its own: the stand-in takes
    gradients only where it was the first to ask for one."""
    done = checked("--only", "waits", "--cases", ".lmh")
    assert done.returncode == 0, done.stderr
    rows = [line.split("|") for line in done.stdout.splitlines() if ".lmh" in line]
    waits = {row[1].strip().removesuffix(".lmh"): int(row[2]) for row in rows}
    assert {name for name, count in waits.items() if count} == {"tags"}
    assert set(waits) == set(NETWORKS)


def test_every_network_and_every_loss_is_among_the_cases() -> None:
    cases = every_case()
    assert {name.partition(".")[0] for name in cases} == set(NETWORKS)
    assert {name.partition(".")[2] for name in cases} == set(LOSSES)


def test_numbers_keep_the_bits_of_a_matrix_unit() -> None:
    values = torch.tensor([1 + 2**-10, 1 + 2**-12, 1 + 3 * 2**-12, -3.0, torch.inf, 0.0])
    expected = torch.tensor([1 + 2**-10, 1, 1 + 2**-10, -3.0, torch.inf, 0.0])
    assert torch.equal(rounded(values, 10), expected)
    assert torch.equal(rounded(values, 23), values)
    factor = torch.tensor([[1 + 2**-12]])
    with CoarseProducts(10):
        assert (factor @ factor).item() == 1
        assert (factor * factor).item() > 1  # no product of matrices


def test_drawn_numbers_are_the_same_in_every_type() -> None:
    with DrawnOnTheCpu():
        drawn = []
        for dtype in (torch.float32, torch.float64):
            torch.manual_seed(3)
            values = [torch.randn(5, dtype=dtype), torch.zeros(5, dtype=dtype).bernoulli_(0.5)]
            drawn.append([*values, torch.nn.functional.dropout(torch.ones(5, dtype=dtype), 0.5)])
    for one, other in zip(*drawn, strict=True):
        assert other.dtype == torch.float64
        assert torch.equal(one.double(), other)


def test_a_curve_beyond_its_bound_fails_the_check() -> None:
    near, far = Compared("a.b", "tf32", 1e-4, 1e-4, 4e-4), Compared("c.d", "tf32", float("inf"), 1e-4, 4e-4)
    part = page.of_curves([near, far], "a GPU")
    assert [line.split(" in ")[0] for line in part.problems] == ["c.d"]
    assert "| c.d | tf32 | inf | 1.0e-04 | 4.0e-04 | **no** |" in part.markdown()


def test_a_bound_is_a_multiple_of_what_the_cpu_loses(tmp_path: Path) -> None:
    data = make_data(tmp_path, Made())
    cases = {name: case for name, case in every_case().items() if name in ("vsepp.lmh", "vsepp.info_nce")}
    exact, coarse = (
        list(compare(cases, data, torch.device("cpu"), [precision], steps=2)) for precision in ("float32", "bfloat16")
    )
    assert all(each.holds for each in (*exact, *coarse))
    assert min(each.yardstick for each in coarse) > 100 * max(each.yardstick for each in exact)
    assert all(each.bound >= FACTOR * each.yardstick for each in (*exact, *coarse))


@pytest.mark.slow
def test_a_lack_of_memory_is_told_and_survived(tmp_path: Path) -> None:
    told = attempts.out_of_memory(make_data(tmp_path, Made()), "cpu")
    assert (told["kind"], told["survived"]) == ("memory", True), told["text"]


@pytest.mark.slow
def test_two_trials_at_once_have_the_losses_of_one_alone(tmp_path: Path) -> None:
    data = make_data(tmp_path, Made())
    alone, both = (
        sharing.measured(
            small_network("vsepp"), data, "cpu", trials=trials, threads=1, training={"batch_size": 16}, seconds=0.5
        )
        for trials in (1, 2)
    )
    assert both.losses == [alone.losses[0]] * 2
    assert both.pairs_s > 0


@pytest.mark.slow
def test_a_training_stopped_half_way_goes_on_as_if_it_had_not(tmp_path: Path) -> None:
    found = attempts.resumed(make_data(tmp_path, Made()), "cpu", "vsepp")
    assert (found.continued, found.repeated) == (0, 0)


@pytest.mark.slow
def test_every_network_and_loss_has_the_curve_of_the_cpu_on_a_stand_in_for_a_gpu() -> None:
    done = checked("--only", "curves")
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stdout.count("| yes |") == len(every_case())


def test_the_data_set_has_all_that_published_networks_read(tmp_path: Path) -> None:
    data = make_data(tmp_path, Made(images=8, evaluated=2))
    for name in NETWORKS:
        trial = trial_of(data, published_network(name), {"name": "lmh"}, shuffle_pairs=8)
        source = TrainingBatches(trial, opened(data), torch.device("cpu"))
        assert source.take(0).pairs == trial.training.batch_size, name
        source.close()


@pytest.mark.slow
def test_cases_side_by_side_are_found_as_one_after_the_other(tmp_path: Path) -> None:
    data = make_data(tmp_path, Made())
    cases = {name: case for name, case in every_case().items() if name in ("vsepp.lmh", "vsepp.top_f")}
    one, two = (
        list(compare(cases, data, torch.device("cpu"), ["float32"], steps=2, processes=processes))
        for processes in (1, 2)
    )
    assert [each.case for each in two] == list(cases)
    assert all(each.device < FACTOR * 1e-6 for each in (*one, *two))
    assert [each.case for each in one] == [each.case for each in two]
