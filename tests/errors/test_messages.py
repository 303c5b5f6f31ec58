"""Every message has a code of its own package, its fields are given where it is used, and errors keep both."""

from __future__ import annotations

import ast
import importlib
import pickle
import pkgutil
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

import vsetune
from vsetune.errors import ConfigError, DataError, Message, Problem, VsetuneError

SOURCES = Path(vsetune.__file__).parent
LETTERS = {
    "api": "A", "config": "C", "storage": "O", "metrics": "M", "losses": "L", "networks": "N", "records": "R",
    "data": "D", "search": "E", "training": "T", "report": "B", "quality": "Q", "study": "S", "nightly": "G",
    "cli": "X",
}
CUT = Message("VSE-D999", "{shard}: {missing} bytes are missing; copy it again.")


def catalogues() -> Iterator[tuple[str, dict[str, Message]]]:
    """The messages of every package, by their names."""
    for package in (each.name for each in pkgutil.iter_modules([str(SOURCES)]) if each.ispkg):
        if (SOURCES / package / "messages.py").exists():
            module = importlib.import_module(f"vsetune.{package}.messages")
            yield package, {name: each for name, each in vars(module).items() if isinstance(each, Message)}


CATALOGUES = dict(catalogues())


def test_codes_name_their_package_and_are_used_once() -> None:
    codes = [each.code for messages in CATALOGUES.values() for each in messages.values()]
    assert len(codes) == len(set(codes))
    for package, messages in CATALOGUES.items():
        for name, each in messages.items():
            assert each.code[:5] == f"VSE-{LETTERS[package]}", name
            assert each.code[5:].isdigit(), name
            assert len(each.code) == 8, name


@pytest.mark.parametrize("package", LETTERS)
def test_every_use_gives_the_fields_of_its_message(package: str) -> None:
    used = set()
    for place, name, given in uses(package):
        message = CATALOGUES[package][name]
        used.add(name)
        if given is not None:
            assert given == fields_of(message), f"{place}: {name}"
    assert used == set(CATALOGUES.get(package, {}))


def fields_of(message: Message) -> set[str]:
    return {field for _, field, _, _ in string.Formatter().parse(message.text) if field}


def uses(package: str) -> Iterator[tuple[str, str, set[str] | None]]:
    """(place, name, names of the given fields) of each use of a message; None for fields that are not written out."""
    for file in (SOURCES / package).rglob("*.py"):
        if file.name == "messages.py":
            continue
        tree = ast.parse(file.read_text())
        calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
        for node in ast.walk(tree):
            is_message = isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "messages"
            if is_message and node.attr in CATALOGUES.get(package, {}):
                call = calls.get(id(node))
                names = {each.arg for each in call.keywords} if call is not None else {None}
                yield f"{file}:{node.lineno}", node.attr, None if None in names else {*filter(None, names)}


def test_an_error_keeps_code_and_fields_on_its_way_to_another_process() -> None:
    error = DataError(CUT(shard=Path("a.tar"), missing=3))
    there = pickle.loads(pickle.dumps(error))
    assert str(there) == "a.tar: 3 bytes are missing; copy it again."
    assert (there.problem.code, there.problem.fields) == ("VSE-D999", {"shard": "a.tar", "missing": 3})


@pytest.mark.parametrize("kind", [DataError, ConfigError])
def test_an_error_is_raised_with_its_code_sentence_and_fields(kind: type[VsetuneError]) -> None:
    there = pickle.loads(pickle.dumps(kind("VSE-D998", "{what}: got {text!r}", what="row 3", text="{x}")))
    assert str(there) == "row 3: got '{x}'"
    assert (there.problem.code, there.problem.fields) == ("VSE-D998", {"what": "row 3", "text": "{x}"})


def test_several_problems_keep_their_codes_and_their_places() -> None:
    problem = CUT(shard="a.tar", missing=3).at("recipe.yaml")
    there = pickle.loads(pickle.dumps(ConfigError(["without a message", problem])))
    assert there.problems == ["without a message", "recipe.yaml: a.tar: 3 bytes are missing; copy it again."]
    assert there.problems[1].code == "VSE-D999"
    assert there.problem.code == ""


def test_braces_in_a_field_are_kept() -> None:
    assert CUT(shard="{x}", missing="{0}") == "{x}: {0} bytes are missing; copy it again."


def test_a_problem_of_several_cells_is_told_once_with_all_of_them() -> None:
    model = Problem("f.yaml: cell scan.lsh: network.model: no such folder", "VSE-C092", {"key": "network.model"})
    same = "f.yaml: cell scan.lmh: network.model: no such folder"
    lines = [model, same, "other", "search: cell a.b: too small", "other"]
    error = ConfigError([*lines, *(f"cell a.{number}: broken" for number in range(5))])
    assert error.problems == [
        "f.yaml: cells scan.lsh, scan.lmh: network.model: no such folder", "other", "search: cell a.b: too small",
        "cells a.0, a.1, a.2 and 2 more: broken",
    ]
    assert error.problem.code == "VSE-C092"
