"""`vsetune study confirm`: whoever names what cannot be confirmed is told so in one line."""

from __future__ import annotations

import io

from rich.console import Console

from vsetune.config.study.study_spec import StudySpec
from vsetune.records.events import StudyRecord
from vsetune.study.preparation import prepare_study


def test_what_cannot_be_confirmed_is_named_in_one_line(vsetune, opened, home) -> None:
    config = {"study": "tiny", "data": {"path": "data"}, "networks": [{"name": "vsepp"}], "losses": [{"name": "lmh"}]}
    opened(StudyRecord("tiny", "beef", StudySpec.model_validate(config).to_plain()))
    for name, told in {
        "tinny": f"study tinny: not in {home}, which has: tiny; did you mean tiny?",
        "tiny.yaml": "tiny.yaml: no such file; name a study file, or a study that has begun",
        "tiny": "data",
    }.items():
        said = vsetune("study", "confirm", name)
        assert (said.code, len(said.lines)) == (2, 1), said.err
        assert told in said.lines[0]


def test_a_study_that_still_searches_is_gone_on_with_first(vsetune, opened, study) -> None:
    file = study()
    opened(prepare_study(file, Console(file=io.StringIO())).record())
    for name in ("tiny", str(file)):
        said = vsetune("study", "confirm", name, "--seeds", "2")
        assert (said.code, len(said.lines)) == (2, 1), said.err
        assert "VSE-S028: study tiny: its search is not over in vsepp.lmh" in said.lines[0]
