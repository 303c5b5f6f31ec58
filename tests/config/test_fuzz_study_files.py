"""Whatever stands in a study file: cells that resolve, or problems in one line each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spoiled_files import assert_told_in_lines, seeded, spoiled

from vsetune.config.spec.loading import dump_yaml, load_spec
from vsetune.config.study.cells import build_trial, resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.errors import ConfigError

STUDIES = sorted((Path(__file__).parents[2] / "studies").glob("[!n]*.yaml"))
"""Without `nightly*.yaml`, which are no studies."""
SMALLEST = sorted(STUDIES, key=lambda path: path.stat().st_size)[:4]
@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spoiled")


def is_valid_or_told(content: bytes, folder: Path) -> None:
    path = folder / "study.yaml"
    path.write_bytes(content)
    try:
        study = load_spec(path, StudySpec)
        cells = resolve_cells(study, where="study.yaml")
    except ConfigError as error:
        assert_told_in_lines(error.problems)
        return
    plain = study.to_plain()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    path.write_text(dump_yaml(plain), encoding="utf-8")
    assert load_spec(path, StudySpec) == study
    for cell in cells:
        build_trial(study, cell, cell.defaults(), trial="t", seed=study.seeds[0])


@settings(seeded, max_examples=100)
@given(data=st.data())
def test_spoiled_study_files_are_valid_or_told_in_lines(data: st.DataObject, folder: Path) -> None:
    is_valid_or_told(data.draw(spoiled(SMALLEST)), folder)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(seeded, max_examples=2000)
@given(data=st.data())
def test_two_thousand_spoiled_study_files(data: st.DataObject, folder: Path) -> None:
    is_valid_or_told(data.draw(spoiled(STUDIES)), folder)
