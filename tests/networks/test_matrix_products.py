"""Products by oneDNN equal those of plain loops in float64, and are torch's own wherever oneDNN does not pay.

Each test runs as on a processor of Intel's, where MKL is the faster one, and as on another's.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from vsetune.networks.parts import matrix_products
from vsetune.networks.parts.gradients import PLAIN_AUTOGRAD
from vsetune.networks.parts.linear import Linear

SIZES = {"pays": (128, 96, 100), "odd": (1031, 65, 33), "too small": (3, 5, 4), "too narrow": (4096, 4, 900)}


@pytest.fixture(params=[False, True], ids=["another's", "intel's"], autouse=True)
def is_intels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whose processor it is taken for."""
    monkeypatch.setattr(matrix_products, "_is_intels", lambda: request.param)
    return bool(request.param)


def drawn(*shape: int) -> Tensor:
    torch.manual_seed(sum(shape))
    return torch.randn(shape)


def looped(left: Tensor, right: Tensor) -> Tensor:
    """(n, m) by its definition, in float64."""
    left, right = left.double(), right.double()
    return torch.stack([(row[:, None] * right).sum(dim=0) for row in left])


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found.double(), expected.double(), rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("lies", ["in rows", "in columns", "apart"])
def test_a_product_is_that_of_a_loop_however_its_factors_lie(size: tuple[int, int, int], lies: str) -> None:
    n, k, m = size
    left, right, bias = drawn(n, k), drawn(k, m), drawn(m)
    if lies == "in columns":
        left, right = left.T.contiguous().T, right.T.contiguous().T
    if lies == "apart":
        left, right = drawn(n, k + 3)[:, 1:-2], drawn(k + 2, m + 1)[1:-1, 1:]
    close(matrix_products.product(left, right), looped(left, right))
    close(matrix_products.product(left, right, bias), looped(left, right) + bias)


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("has_bias", [True, False])
def test_a_linear_map_and_its_gradients_are_those_of_torch_in_float64(
    size: tuple[int, int, int], has_bias: bool
) -> None:
    n, k, m = size
    outcomes = []
    for dtype, multiply in ((torch.float32, matrix_products.linear), (torch.float64, nn.functional.linear)):
        leaves = [drawn(n, k).view(1, n, k), drawn(m, k), *([drawn(m)] if has_bias else [])]
        leaves = [leaf.to(dtype).requires_grad_() for leaf in leaves]
        found = multiply(*leaves)
        assert found.shape == (1, n, m)
        outcomes.append([found, *torch.autograd.grad(found, leaves, drawn(1, n, m).to(dtype) / n**0.5)])
    for found, expected in zip(*outcomes, strict=True):
        close(found, expected)


@pytest.mark.parametrize("times", [1, 20])
@pytest.mark.parametrize("shape", [(2048, 300), (40, 30)], ids=["laid out once", "too small"])
@pytest.mark.parametrize("lies", ["in rows", "in columns"])
def test_products_with_one_weight_are_those_of_a_loop_for_any_number_of_rows(
    times: int, shape: tuple[int, int], lies: str
) -> None:
    weight, bias = drawn(*shape), drawn(shape[0])
    if lies == "in columns":
        weight = weight.T.contiguous().T
    ours, with_bias = (matrix_products.products_with(weight, *each, times=times) for each in ((), (bias,)))
    for rows in (drawn(1, shape[1]), drawn(3, shape[1]), drawn(64, shape[1])):
        close(ours(rows), looped(rows, weight.T))
        close(with_bias(rows), looped(rows, weight.T) + bias)


@pytest.mark.skipif(not matrix_products._has_onednn(), reason="oneDNN multiplies on processors with AVX-512 only")
@pytest.mark.parametrize(("times", "calls"), [(7, 0), (8, 1)])
def test_a_weight_is_laid_out_once_where_enough_products_follow(
    times: int, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid_out, plain = [], torch.ops.mkldnn._reorder_linear_weight
    monkeypatch.setattr(
        torch.ops.mkldnn, "_reorder_linear_weight", lambda weight: laid_out.append(weight) or plain(weight)
    )
    weight = drawn(1024, 512)
    multiply = matrix_products.products_with(weight, times=times)
    for rows in range(1, times + 1):
        multiply(drawn(rows, 512))
    assert len(laid_out) == calls


def error(found: Tensor, expected: Tensor) -> float:
    """Root of the mean square, as a share of that of the expected numbers."""
    return ((found.double() - expected).square().mean() / expected.square().mean()).sqrt().item()


@pytest.mark.parametrize("numbers", [1024, 2048, 5000])
@pytest.mark.parametrize("lies", ["in rows", "in columns", "laid out once"])
def test_long_sums_are_at_most_twice_as_far_from_float64_as_torchs(numbers: int, lies: str) -> None:
    rows, weight = drawn(128, numbers), drawn(256, numbers)
    torchs, expected = rows @ weight.T, rows.double() @ weight.double().T
    if lies == "laid out once":
        found = matrix_products.products_with(weight, times=20)(rows)
    else:
        right = weight.T if lies == "in columns" else weight.T.contiguous()
        found = matrix_products.product(rows, right)
    ours, theirs = error(found, expected), error(torchs, expected)
    assert ours < 2 * theirs


@pytest.mark.parametrize("numbers", [300, 2048])
def test_a_forward_pass_is_about_as_far_from_float64_as_torchs(numbers: int) -> None:
    rows, weight = drawn(128, numbers), drawn(256, numbers)
    expected = rows.double() @ weight.double().T
    ours, theirs = error(matrix_products.linear(rows, weight), expected), error(rows @ weight.T, expected)
    assert ours < 1.5 * theirs


def test_inputs_without_gradient_get_none() -> None:
    inputs, weight = drawn(128, 128), drawn(128, 128).requires_grad_()
    matrix_products.linear(inputs, weight).sum().backward()
    assert inputs.grad is None
    close(weight.grad, inputs.sum(dim=0).expand(128, -1))


def test_a_row_that_holds_no_number_leaves_the_others_alone() -> None:
    inputs, weight = drawn(128, 128), drawn(128, 128)
    inputs[5, 7] = torch.nan
    assert matrix_products.linear(inputs, weight).isnan().any(dim=1).nonzero().flatten().tolist() == [5]


def test_the_same_product_twice_is_the_same_number_for_number() -> None:
    inputs, weight = drawn(300, 200), drawn(250, 200)
    assert torch.equal(matrix_products.linear(inputs, weight), matrix_products.linear(inputs.clone(), weight.clone()))


def by_hand(inputs: Tensor, weight: Tensor) -> bool:
    return "_Linear" in str(matrix_products.linear(inputs, weight.requires_grad_()).grad_fn)


def test_processor_switch_autocast_and_other_types_leave_products_to_torch(
    is_intels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, weight = drawn(128, 128), drawn(128, 128)
    assert by_hand(inputs, weight) == (matrix_products._has_onednn() and not is_intels)
    assert not by_hand(inputs.double(), weight.double())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not by_hand(inputs, weight)
        assert matrix_products.linear(inputs, weight).dtype == torch.bfloat16
    monkeypatch.setenv(PLAIN_AUTOGRAD, "1")
    assert not by_hand(inputs, weight)


def test_shapes_that_do_not_fit_are_told_by_torch() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        matrix_products.linear(drawn(128, 128), drawn(128, 100))


def test_a_linear_layer_is_torchs_with_the_same_names() -> None:
    torch.manual_seed(0)
    ours, theirs = Linear(128, 200), nn.Linear(128, 200)
    theirs.load_state_dict(ours.state_dict())
    close(ours(drawn(100, 128)), theirs(drawn(100, 128)))


@pytest.mark.parametrize(("told", "whose"), [
    ("vendor_id\t: GenuineIntel\nmodel name\t: Xeon", True), ("vendor_id\t: AuthenticAMD\nmodel name\t: EPYC", False),
    ("", False),
])
def test_a_processor_says_whose_it_is(told: str, whose: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    file = tmp_path / "cpuinfo"
    file.write_text(told)
    monkeypatch.setattr(matrix_products, "_TOLD_IN", file)
    assert matrix_products._is_intels.__wrapped__() == whose


def test_where_no_file_tells_of_the_processor_the_system_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(matrix_products, "_TOLD_IN", tmp_path / "none")
    monkeypatch.setattr(matrix_products, "processor", lambda: "Intel64 Family 6 Model 85 Stepping 7, GenuineIntel")
    assert matrix_products._is_intels.__wrapped__()
