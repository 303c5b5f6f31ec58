"""`vsetune study explain`: the page is written from a study's log, mistakes are one line."""

from __future__ import annotations

from vsetune.config.study.study_spec import StudySpec
from vsetune.records.events import AttemptStart, StudyRecord, ValidationPoint


def test_the_page_of_a_study_is_written_under_the_home(vsetune, opened, home) -> None:
    config = {"study": "tiny", "data": {"path": "data"}, "networks": [{"name": "vsepp"}], "losses": [{"name": "lmh"}]}
    study = opened(StudyRecord("tiny", "beef", StudySpec.model_validate(config).to_plain()))

    said = vsetune("study", "explain", "tiny")
    assert (said.code, len(said.lines)) == (2, 1)
    assert "study tiny: has no trials yet" in said.lines[0]
    said = vsetune("study", "explain", "tinny")
    assert (said.code, len(said.lines)) == (2, 1)
    assert f"study tinny: not in {home}, which has: tiny; did you mean tiny?" in said.lines[0]

    run = study.start_attempt(AttemptStart(
        "tiny", "vsepp.lmh-c000-s0", "vsepp.lmh", "vsepp", "lmh", 1, 0, "search", {"loss.margin": 0.2}, {},
    ))
    study.record_points(run, [ValidationPoint(10, 1.0, 100, 41.5, 1.0)])
    said = vsetune("study", "explain", "tiny")
    assert said.code == 0, said.err
    page = home / "searches" / "tiny.html"
    assert said.out.strip() == str(page)
    assert "41.5" in page.read_text()
