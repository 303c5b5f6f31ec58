"""A CPU and a GPU train by the same formulas."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import vsetune

PACKAGE = Path(vsetune.__file__).parent
DECLARED = {"losses/parts/loss_devices.py", "networks/parts/network_devices.py"}
ASKS = {"is_cuda", "is_cpu", "is_mps", "is_xpu", "get_device", "cuda"}


def questions(code: str) -> list[int]:
    """Lines that ask for a device's kind. `torch.autocast(x.device.type, ...)` does not: it must be told one."""
    tree = ast.parse(code)
    told = {
        id(call.args[0]) for call in ast.walk(tree)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "torch.autocast" and call.args
    }
    return [
        node.lineno for node in ast.walk(tree) if isinstance(node, ast.Attribute) and id(node) not in told
        and (node.attr in ASKS or (node.attr == "type" and ast.unparse(node.value).endswith("device")))
    ]


def test_losses_and_networks_ask_for_the_device_in_one_place_each() -> None:
    found = {
        str(file.relative_to(PACKAGE)) for room in ("losses", "networks") for file in (PACKAGE / room).rglob("*.py")
        if questions(file.read_text())
    }
    assert found == DECLARED


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("x.is_cuda", [1]), ("if x.device.type == 'cpu': pass", [1]), ("device.type", [1]), ("torch.cuda.sync()", [1]),
        ("with torch.autocast(x.device.type, enabled=False): pass", []), ("x.dtype; spec.type", []),
    ],
)
def test_questions_are_found(code: str, lines: list[int]) -> None:
    assert questions(code) == lines
