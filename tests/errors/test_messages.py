"""Every error has a code of its package and one sentence a code, gets the fields of its sentence, and keeps them."""

from __future__ import annotations

import ast
import pickle
import re
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vsetune
from vsetune.errors import ConfigError, DataError, Message, VsetuneError

SOURCES = Path(vsetune.__file__).parent
LETTERS = {
    "api": "A", "config": "C", "home": "O", "metrics": "M", "losses": "L", "networks": "N", "records": "R",
    "data": "D", "search": "E", "training": "T", "board": "B", "quality": "Q", "study": "S", "nightly": "G",
    "cli": "X",
}
CUT = Message("VSE-D999", "{shard}: {missing} bytes are missing; copy it again.")


def sentences() -> Iterator[tuple[str, str, str, set[str] | None]]:
    """(place, code, sentence, names of the given fields) of each call with a code and a sentence. None: the fields are
    given elsewhere, as those of a `Message` are."""
    for file in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            words = [each.value for each in node.args[:2] if isinstance(each, ast.Constant)] if isinstance(
                node, ast.Call) else []
            if len(words) == 2 and str(words[0]).startswith("VSE-"):
                given = {each.arg for each in node.keywords}
                is_open = None in given or getattr(node.func, "id", "") == "Message"
                yield f"{file.relative_to(SOURCES)}:{node.lineno}", *words, None if is_open else given


@pytest.fixture(scope="module")
def all_sentences() -> list[Any]:
    return list(sentences())


def test_codes_name_their_package_and_have_one_sentence(all_sentences: list[Any]) -> None:
    assert len(all_sentences) > 500
    by_code: dict[str, str] = {}
    for place, code, sentence, _ in all_sentences:
        assert re.fullmatch(rf"VSE-{LETTERS[place.split('/')[0]]}\d{{3}}", code), place
        assert by_code.setdefault(code, sentence) == sentence, f"{place}: {code} stands for another sentence"


def test_every_sentence_gets_its_fields(all_sentences: list[Any]) -> None:
    for place, code, sentence, given in all_sentences:
        fields = {field for _, field, _, _ in string.Formatter().parse(sentence) if field}
        assert given is None or given == fields, f"{place}: {code}"


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
