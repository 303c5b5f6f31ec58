"""Exports spoiled at random: an import refuses them in a line and writes nothing, or all that it wrote can be read."""

from __future__ import annotations

import copy
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from foreign_exports import bring, everything_below, export, read, run_of, write
from hypothesis import given, settings
from hypothesis import strategies as st
from spoiled_files import VALUES, seeded

from vsetune.errors import DataError
from vsetune.leaderboard.building import build
from vsetune.tracking import open_store

__all__ = ["export"]


def places(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place in JSON."""
    yield place
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*place, key))


def spoil(plain: Any, place: tuple[str | int, ...], value: Any) -> Any:
    if not place:
        return value
    plain[place[0]] = spoil(plain[place[0]], place[1:], value)
    return plain


def as_json(value: Any) -> bytes:
    return json.dumps(value, default=str).encode(errors="surrogatepass")


@st.composite
def spoiled_exports(draw: st.DrawFn, export: Path) -> dict[str, bytes]:
    """By name, the content of the file that was spoiled; its hash in the header is right."""
    name = draw(st.sampled_from(["study.json", run_of(export, "attempt"), run_of(export, "study")]))
    plain = read(export, name)
    if draw(st.integers(0, 4)) == 0:
        content = bytearray(as_json(plain))
        for _ in range(draw(st.integers(1, 3))):
            at = draw(st.integers(0, len(content) - 1))
            content[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=4))
        return {name: bytes(content)}
    for _ in range(draw(st.integers(1, 2))):
        place = draw(st.sampled_from(sorted(places(plain), key=str)))
        plain = spoil(plain, place, copy.deepcopy(draw(st.sampled_from(VALUES))))
    return {name: as_json(plain)}


def assert_refused_or_whole(data: st.DataObject, export: Path, empty_database: Path, folder: Path) -> None:
    """An import says what is wrong and writes nothing, or what it wrote can be read by every command."""
    own = Path(tempfile.mkdtemp(dir=folder))  # MLflow holds on to a database that it knows by its path
    place, home = own / "spoiled", own / "home"
    shutil.copytree(export, place)
    home.mkdir()
    shutil.copy(empty_database, home / "mlflow.db")
    for name, content in data.draw(spoiled_exports(export)).items():
        write(place, name, content)
    said = refusal(place, home)
    if said is not None:
        assert said.isprintable()
        assert len(said) < 1000
        assert everything_below(home) == {home / "mlflow.db"}
        assert (home / "mlflow.db").read_bytes() == empty_database.read_bytes()
        return
    store = open_store(f"sqlite:///{home / 'mlflow.db'}", None)
    for record in store.studies():
        assert record.name == "nightly"
        assert (record.config.get("tracking") or {}).keys() <= {"series"}
        attempts = store.attempts("nightly")
        assert {attempt.start.study for attempt in attempts} <= {"nightly"}
        build(attempts, baseline="lmh")


def refusal(place: Path, home: Path) -> str | None:
    try:
        bring(place, home)
    except DataError as error:
        return str(error)
    return None


@settings(seeded, max_examples=25)
@given(data=st.data())
def test_spoiled_exports_are_refused_or_whole(
    data: st.DataObject, export: Path, empty_database: Path, tmp_path: Path
) -> None:
    assert_refused_or_whole(data, export, empty_database, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(seeded, max_examples=2000)
@given(data=st.data())
def test_two_thousand_spoiled_exports_are_refused_or_whole(
    data: st.DataObject, export: Path, empty_database: Path, tmp_path: Path
) -> None:
    assert_refused_or_whole(data, export, empty_database, tmp_path)
