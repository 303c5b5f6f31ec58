"""Winners at an end of what their search was given are said, with the lines that search wider; limits are not."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
import yaml

from vsetune.board.board_notes import notes
from vsetune.board.building import build
from vsetune.board.export import to_json, to_latex, to_markdown
from vsetune.board.page import to_html
from vsetune.board.rows import AT_RANGE_END
from vsetune.config.spec.base import Choices, Range
from vsetune.config.study.cells import cell_of, refusal
from vsetune.config.study.study_spec import StudySpec
from vsetune.records.events import PLUGIN_TAG, AttemptStart, StudyRecord
from vsetune.records.state import Attempt
from vsetune.study.range_ends import NEAR, board_with_ends, near_end, range_ends

LINEAR = Range(low=0.0, high=2.0)
LOG = Range(low=1e-4, high=1e-2, log=True)
WHOLE = Range(low=1, high=10, integer=True)


@pytest.mark.parametrize(("domain", "value", "end"), [
    (LINEAR, 0.0, "low"), (LINEAR, 2 * NEAR, "low"), (LINEAR, 2 * NEAR + 0.01, None), (LINEAR, 1.0, None),
    (LINEAR, 1.89, None), (LINEAR, 1.91, "high"), (LINEAR, 2.0, "high"),
    (LOG, 1.0e-4, "low"), (LOG, 1.2e-4, "low"), (LOG, 1.3e-4, None), (LOG, 5e-3, None), (LOG, 9e-3, "high"),
    (LOG.model_copy(update={"log": False}), 5e-4, "low"), (LOG.model_copy(update={"log": False}), 9e-3, None),
    (WHOLE, 1, "low"), (WHOLE, 2, None), (WHOLE, 9, None), (WHOLE, 10, "high"),
    (Range(low=1, high=100, integer=True), 4, "low"), (Range(low=0, high=1, integer=True), 1, None),
    (Range(low=0.3, high=0.3), 0.3, None),
    (Choices(choices=[64, 256, 128]), 256, "high"), (Choices(choices=[64, 256, 128]), 64, "low"),
    (Choices(choices=[64, 256, 128]), 128, None), (Choices(choices=[64, 128]), 64, None),
    (Choices(choices=["hyperbolic", "linear", "none"]), "none", None), (Choices(choices=[True, False]), True, None),
])
def test_the_outer_twentieth_on_the_scale_that_is_searched_is_an_end(domain: Any, value: Any, end: Any) -> None:
    assert near_end(domain, value) == end


def study(**changes: Any) -> StudySpec:
    return StudySpec.model_validate({
        "study": "demo", "data": {"path": "data/scenes"}, "networks": [{"name": "vsepp"}],
        "losses": [{"name": "lmh"}, {"name": "lseh"}], "training": {"epochs": 6},
        "search": {"training": {"learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}}},
    } | changes)


def found(spec: StudySpec, cell: str, **values: Any) -> dict[str, Any]:
    resolved = cell_of(spec, cell)
    assert resolved is not None
    chosen = resolved.defaults() | {name.replace("__", "."): value for name, value in values.items()}
    return {each.setting: each for each in range_ends(spec, resolved, chosen)}


def with_edit(spec: StudySpec, place: str, line: str) -> StudySpec:
    """The study after what the sentence asks for."""
    plain, said = spec.to_plain(), yaml.safe_load(line)
    if place == "search.training":
        plain["search"]["training"] |= said
        return StudySpec.model_validate(plain)
    kind, name, part = re.fullmatch(r"(networks|losses), entry (\w+)(?:, its part (\w+))?", place).groups()
    (entry,) = (each for each in plain[kind] if name in (each["label"], each["name"]))
    if part:
        (entry,) = (each for each in entry["loss"] if part in (each["label"], each["name"]))
    entry |= said
    return StudySpec.model_validate(plain)


def test_the_lines_of_the_sentence_search_wider_and_all_else_as_before() -> None:
    spec = study()
    ends = found(spec, "vsepp.lseh", loss__margin=0.395, training__learning_rate=1e-4)
    assert ends.keys() == {"loss.margin", "training.learning_rate"}
    margin, rate = ends["loss.margin"], ends["training.learning_rate"]
    assert (margin.end, margin.value, margin.searched) == ("high", "0.395", "0.05 to 0.4")
    assert margin.place == "losses, entry lseh"
    assert margin.line == "search: {margin: {low: 0.05, high: 0.6}, semantic_temperature: default}"
    assert (rate.end, rate.place, rate.line) == (
        "low", "search.training", "learning_rate: {low: 1.0e-05, high: 0.01, log: true}"
    )
    for each in (margin, rate):
        before = cell_of(spec, "vsepp.lseh").domains
        after = cell_of(with_edit(spec, each.place, each.line), "vsepp.lseh").domains
        assert after.keys() == before.keys()
        changed = {name for name in before if before[name] != after[name]}
        assert changed == {each.setting}
        wide, narrow = after[each.setting], before[each.setting]
        assert wide.high - wide.low > narrow.high - narrow.low
        assert (wide.low, wide.high)[each.end == "low"] == (narrow.low, narrow.high)[each.end == "low"]


def test_a_setting_in_the_middle_is_not_told() -> None:
    assert found(study(), "vsepp.lseh", loss__margin=0.2, training__learning_rate=1e-3) == {}


@pytest.mark.parametrize(("low", "high", "value", "told"), [
    (0.0, 0.4, 0.0, False), (0.01, 0.4, 0.01, False), (0.05, 0.4, 0.05, True), (0.0, 0.4, 0.4, True),
])
def test_an_end_beyond_which_the_setting_takes_nothing_is_no_end(
    low: float, high: float, value: float, told: bool
) -> None:
    """A margin is at least 0."""
    spec = study(losses=[{"name": "lmh", "search": {"margin": {"low": low, "high": high}}}])
    assert bool(found(spec, "vsepp.lmh", loss__margin=value)) is told


def test_it_is_widened_only_as_far_as_the_study_takes_it() -> None:
    """A margin is at least 0; half of the range more would be less."""
    spec = study(losses=[{"name": "lmh", "search": {"margin": {"low": 0.1, "high": 0.4}}}])
    end = found(spec, "vsepp.lmh", loss__margin=0.1)["loss.margin"]
    assert end.line == "search: {margin: {low: 0.02, high: 0.4}}"
    wider = with_edit(spec, end.place, end.line)
    assert refusal(wider, cell_of(wider, "vsepp.lmh"), {"loss.margin": 0.02}) is None


def test_whole_numbers_choices_networks_and_parts_of_a_sum_have_their_own_lines() -> None:
    spec = study(
        networks=[{"name": "vsepp", "label": "small", "search": {"embedding_size": {"choices": [64, 128, 256]}}}],
        losses=[
            {"name": "lmh"},
            {"label": "both", "loss": [
                {"name": "lmh", "search": "none"},
                {"name": "lseh", "search": {"weight": {"low": 0.5, "high": 2}, "margin": "default"}},
            ]},
        ],
    )
    ends = found(spec, "small.both", network__embedding_size=256, loss__lseh__weight=2.0, loss__lseh__margin=0.2)
    size, weight = ends["network.embedding_size"], ends["loss.lseh.weight"]
    assert (size.place, size.line) == (
        "networks, entry small", "search: {embedding_size: {choices: [64, 128, 256, 512]}}"
    )
    assert (weight.place, weight.line) == (
        "losses, entry both, its part lseh", "search: {weight: {low: 0.5, high: 2.8}, margin: default}"
    )
    for each in (size, weight):
        assert cell_of(with_edit(spec, each.place, each.line), "small.both").domains[each.setting] != cell_of(
            spec, "small.both"
        ).domains[each.setting]


def test_numbers_that_are_listed_go_on_by_the_last_step_or_factor() -> None:
    def line(choices: list[float], value: float) -> str:
        spec = study(search={"training": {"learning_rate": {"choices": choices}}})
        return str(found(spec, "vsepp.lmh", training__learning_rate=value)["training.learning_rate"].line)

    assert line([0.1, 0.2, 0.3], 0.3) == "learning_rate: {choices: [0.1, 0.2, 0.3, 0.4]}"
    assert line([1e-4, 1e-3, 1e-2], 1e-4) == "learning_rate: {choices: [1.0e-05, 0.0001, 0.001, 0.01]}"


def attempt(number: int, recall: float, margin: float, loss: str = "lmh", repeat: int = 1) -> Attempt:
    cell = f"vsepp.{loss}" if repeat == 1 else f"vsepp.{loss}.r{repeat}"
    start = AttemptStart(
        "demo", f"{cell}-c{number:03d}-s{repeat}", cell, "vsepp", loss, 1, repeat, "search",
        {"loss.margin": margin}, {"data": {"path": "data/scenes"}},
        protocol={"images": 400, "validate_every_steps": 50},
    )
    return Attempt(start.trial, start, "finished", ((0.5, recall / 2), (1.0, recall)), {}, None)


@pytest.fixture
def record() -> StudyRecord:
    return StudyRecord("demo", "beef", study(search={}).to_plain())


def test_every_view_of_a_board_marks_and_says_it(record: StudyRecord) -> None:
    attempts = [attempt(0, 40, 0.2), attempt(1, 50, 0.39), attempt(0, 50, 0.2, "lseh"), attempt(1, 40, 0.39, "lseh")]
    board = board_with_ends(build(attempts, baseline="lmh"), [record])
    flagged, plain = board.rows
    assert (flagged.loss, AT_RANGE_END in flagged.flags, AT_RANGE_END in plain.flags) == ("lmh", True, False)
    (end,) = flagged.pick.range_ends
    sentence = end.sentence("vsepp lmh")
    for view in (" ".join(notes(board)), to_html(board), to_json(board), to_markdown(board)):
        assert sentence in view
    assert json.loads(to_json(board))["rows"][0]["repeats"][0]["range_ends"] == [{
        "setting": "loss.margin", "value": "0.39", "end": "high", "searched": "0.05 to 0.4",
        "place": "losses, entry lmh", "line": "search: {margin: {low: 0.05, high: 0.6}}",
    }]
    assert to_latex(board) != to_latex(build(attempts, baseline="lmh"))


def test_a_board_has_the_range_of_every_searched_setting_and_its_source() -> None:
    spec = study(search={"training": {"learning_rate": {"low": 1e-3, "high": 1e-2, "log": True}}})
    record = StudyRecord("demo", "beef", spec.to_plain())
    board = board_with_ends(build([attempt(0, 40, 0.2), attempt(1, 50, 0.3)], baseline="lmh"), [record])
    assert board.rows[0].searched == (
        "loss.margin 0.05 to 0.4 (the default range; VSE++: 0.2)",
        "training.learning_rate 0.001 to 0.01, log (default 0.0001 to 0.003, log; VSE++: 2e-4)",
    )
    assert "vsepp lmh: searched loss.margin 0.05 to 0.4 (the default range" in " ".join(notes(board))


def test_each_of_several_searches_has_its_own_ends(record: StudyRecord) -> None:
    attempts = [
        attempt(number, recall, margin, repeat=repeat)
        for repeat, recalls in ((1, (40, 50)), (2, (50, 40)), (3, (41, 51)))
        for number, (recall, margin) in enumerate(zip(recalls, (0.2, 0.39), strict=True))
    ]
    board = board_with_ends(build(attempts, baseline="lmh"), [record])
    assert [len(pick.range_ends) for pick in board.rows[0].repeats] == [1, 0, 1]
    said = " ".join(notes(board))
    assert said.count("loss.margin 0.39 of the winner") == 1
    assert "vsepp lmh, search 1, 3: loss.margin 0.39" in said


def test_nothing_is_said_of_one_configuration_nor_of_studies_that_a_board_cannot_read(record: StudyRecord) -> None:
    one, two = [attempt(0, 40, 0.4)], [attempt(0, 40, 0.4), attempt(1, 30, 0.2)]
    assert board_with_ends(build(two, baseline="lmh"), [record]).rows[0].pick.range_ends
    assert not board_with_ends(build(one, baseline="lmh"), [record]).rows[0].pick.range_ends
    others = [
        replace(record, name="other"), replace(record, config={"study": "demo", "from": "the future"}),
        replace(record, tags={f"{PLUGIN_TAG}loss.mine": "beef"}),
    ]
    for other in others:
        assert not board_with_ends(build(two, baseline="lmh"), [other]).rows[0].pick.range_ends


def test_whole_numbers_on_a_log_scale_are_not_searched_down_to_zero() -> None:
    """The setting takes 0, a logarithmic range does not: a line with it would be refused."""
    losses = [{"name": "lmh", "search": {"memory_size": {"low": 1, "high": 64, "log": True}}}]
    spec = study(losses=losses)
    assert found(spec, "vsepp.lmh", loss__memory_size=1, training__learning_rate=1e-3) == {}
    (end,) = found(spec, "vsepp.lmh", loss__memory_size=64, training__learning_rate=1e-3).values()
    assert with_edit(spec, end.place, end.line)
