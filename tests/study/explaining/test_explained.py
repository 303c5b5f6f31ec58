"""A search in importances and slices: on its page and in the terminal."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from vsetune.config.spec.base import Choices, Range
from vsetune.records.events import StudyRecord
from vsetune.study.explaining import explain, sketch, to_html
from vsetune.study.explaining.explained import has_levelled, place_of, seen_domain
from vsetune.study.explaining.explained_page import MOST_PLOTTED, slices_of

HOSTILE = '<img src=x onerror="alert(1)">'


@pytest.fixture
def explained(searched, study):
    return explain(study, searched.attempts())


@pytest.fixture
def cell(explained):
    return next(cell for cell in explained.cells if cell.name == "vsepp.lseh")


def begun(study, store):
    (cell,) = [cell for cell in explain(study, store.attempts()).cells if cell.trials]
    return cell


def titles(chart: str) -> list[str]:
    """The words of its marks, in plotting order."""
    return re.findall("<title>(.*?)</title>", chart)


def test_a_cell_says_its_winner_and_what_became_of_its_trials(cell) -> None:
    assert cell.finding == (
        "Winner: vsepp.lseh-c002-s0: M-Recall 55.50 % at epoch 5.00, finished, with loss.margin 0.14, "
        "training.learning_rate 0.000196; 9 trials (4 finished, 3 pruned, 1 failed, 1 open)."
    )


def test_importances_learn_from_trials_that_finished_or_that_patience_saw_level_off(cell) -> None:
    assert [trial.start.trial[-7:-3] for trial in cell.trials if has_levelled(trial)] == [f"c00{n}" for n in range(6)]
    assert cell.importances.trials == 6


def test_the_setting_that_matters_most_comes_first(store, add, study) -> None:
    for number in range(12):
        add(number, [40.0 + 2 * number])
    cell = begun(study, store)
    assert cell.settings == ["training.learning_rate", "loss.margin"]
    assert sum(cell.importances.shares.values()) == pytest.approx(1.0)
    page = to_html(explain(study, store.attempts()))
    shares = [f"{100 * share:.0f} %" for share in cell.importances.shares.values()]
    assert re.findall(r'<td class="number">(\d+ %)</td>', page) == shares
    assert list(slices_of(cell)) == cell.settings


def test_a_slice_has_every_trial_with_the_winner_on_top_and_failures_at_the_lower_edge(cell) -> None:
    slices = slices_of(cell)
    assert slices.keys() == {"loss.margin", "training.learning_rate"}
    marks = titles(slices["loss.margin"])
    assert len(marks) == 9
    assert marks[-1].startswith("vsepp.lseh-c002-s0: M-Recall 55.50 % at epoch 5.00")
    edge = re.findall(r'<path transform="translate\([\d.]+,150\)"[^>]*><title>(.*?), with', slices["loss.margin"])
    assert edge == [
        "vsepp.lseh-c006-s0: M-Recall 5.00 % at epoch 1.00, pruned (asha: 5.0 % at epoch 1, needs 30.0 % (4 earlier "
        "trials))",
        "vsepp.lseh-c007-s0: no result, failed (loss is not finite at step 140)",
    ]


def test_a_trial_that_breaks_a_constraint_says_that_it_cannot_win(searched, study) -> None:
    attempts = [
        replace(each, summary={**each.summary, "constraint_excess": 0.125}) if "c002-s0" in each.start.trial else each
        for each in searched.attempts()
    ]
    (cell,) = [cell for cell in explain(study, attempts).cells if cell.trials]
    assert "Winner: vsepp.lseh-c001-s0" in cell.finding
    (mark,) = [words for words in titles(slices_of(cell)["loss.margin"]) if "c002-s0" in words]
    assert "finished, breaks a constraint and cannot win, with" in mark


def test_the_terminal_sketches_a_slice_from_one_end_to_the_other(store, add, study) -> None:
    for margin, best, status in ((0.1, 40.0, "finished"), (0.2, 60.0, "finished"), (0.3, 1.0, "failed")):
        add(round(100 * margin), [best], status, **{"loss.margin": margin})
    cell = begun(study, store)
    assert sketch(cell, "loss.margin") == "0.1 ▁...█..x 0.3"
    words = replace(cell, domains={"loss.margin": Choices(choices=[0.2, 0.1, 0.5])})
    assert sketch(words, "loss.margin") == "0.2 █▁. 0.5"


def test_a_trial_without_a_setting_has_no_mark_in_its_slice(store, add, study) -> None:
    for number in range(3):
        add(number, [40.0 + number])
    attempts = store.attempts()
    del attempts[1].start.configuration["loss.margin"]
    (cell,) = [cell for cell in explain(study, attempts).cells if cell.trials]
    assert [len(titles(each)) for each in slices_of(cell).values()] == [2, 3]


def test_of_too_many_trials_the_latest_and_the_winner_are_plotted(store, add, study) -> None:
    for number in range(MOST_PLOTTED + 50):
        add(number, [99.0 if number == 3 else float(number % 97)], "pruned")
    marks = titles(slices_of(begun(study, store))["loss.margin"])
    assert len(marks) == MOST_PLOTTED + 1
    assert "c003-s0" in marks[-1]
    assert f"The latest {MOST_PLOTTED} trials." in to_html(explain(study, store.attempts()))


@pytest.mark.parametrize(("domain", "value", "place"), [
    (Range(low=1e-3, high=1e-1, log=True), 1e-2, 0.5), (Range(low=1e-3, high=1e-1, log=True), 0.0, None),
    (Range(low=0.0, high=1.0), 0.25, 0.25), (Range(low=0.0, high=1.0), 7.0, 1.0), (Range(low=0.5, high=0.5), 0.5, 0.5),
    (Range(low=2, high=4, integer=True), "three", None), (Choices(choices=[True, False]), False, 0.75),
    (Choices(choices=["a", "b"]), "c", None),
])
def test_values_of_a_setting_have_places_along_its_axis(domain, value, place) -> None:
    assert place_of(domain, value) == (place if place is None else pytest.approx(place))


def test_a_range_that_nobody_knows_is_what_the_trials_span() -> None:
    assert seen_domain([0.3, 0.1]) == Range(low=0.1, high=0.3)
    assert seen_domain([3, 5]) == Range(low=3, high=5, integer=True)
    assert seen_domain(["b", "a", "b"]) == Choices(choices=["b", "a"])
    assert len(seen_domain([f"word {number}" for number in range(300)]).choices) == 300  # more than a file may list


def test_a_study_that_cannot_be_read_here_is_explained_by_its_trials(searched) -> None:
    found = explain(StudyRecord("demo", "beef", {"study": "demo", "new_in_9": 1}), searched.attempts())
    assert "cannot be read here" in found.remark
    (cell,) = found.cells
    assert len(slices_of(cell)) == 2
    assert "cannot be read here" in to_html(found)


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append((tag, dict(attrs)))


def test_the_page_stands_alone_and_has_every_cell(explained) -> None:
    page = to_html(explained)
    assert "default-src 'none'" in page
    assert not re.search(r"https?://|@import|url\(|<script|href=", page)
    assert re.findall("<h2[^>]*>(.*?)</h2>", page) == ["vsepp.lmh", "vsepp.lseh"]
    text = " ".join(page.split())
    said = ("<p>No trial yet.</p>", "Winner: vsepp.lseh-c002-s0", "at least 10 trials", "loss is not finite")
    assert [words for words in said if words not in text] == []


def test_names_and_errors_are_escaped(store, add, study) -> None:
    add(0, [40.0], "pruned", error=HOSTILE, **{HOSTILE: 1})
    page = to_html(explain(study, store.attempts()))
    assert "&lt;img src=x" in page
    assert "<img" not in page
    assert not [attributes for _, attributes in Page(page).tags if any(name.startswith("on") for name in attributes)]


SEARCHED = {
    "loss.semantic_temperature": ({"low": 0.5, "high": 2.0}, (0.5, 1.25, 2.0)),
    "loss.margin": ({"low": 0.1, "high": 0.4, "log": True}, (0.1, 0.2, 0.4)),
    "loss.warmup_epochs": ({"low": 0, "high": 4}, (0, 3, 4)),
    "loss.variant": ({"choices": ["decided", "diagonal"]}, ("decided", "diagonal")),
    "network.normalize_images": ({"choices": [True, False]}, (True, False)),
    "network.embedding_size": ({"choices": [64, 128, 256]}, (64, 128, 256)),
    "network.word_size": ({"choices": [32]}, (32,)),
    "training.learning_rate": ({"low": 0.001, "high": 0.001}, (0.001,)),
    "training.weight_decay": ({"choices": [0, 0.01, 1e-5]}, (0, 0.01, 1e-5)),
}
"""A domain of every kind, and values in it."""
OF_OTHERS = {"training.schedule": (None, "linear", 1, True), "loss.terms": ([1, 2], [3]), "loss.more": ({"a": 1}, {})}
"""Values of settings that no study file of this version can search."""


@pytest.mark.parametrize("is_readable", [True, False])
@pytest.mark.parametrize(("results", "step"), [
    ({"finished": 12, "pruned": 2, "failed": 1}, 1.0), ({"finished": 12}, 0.0), ({"finished": 1}, 1.0),
    ({"failed": 2}, 1.0), ({"pruned": 2}, 1.0), ({None: 1}, 1.0), ({}, 1.0),
], ids=["many", "equal values", "one trial", "failed alone", "pruned alone", "running alone", "none"])
def test_every_kind_of_setting_and_of_result_has_a_page(results, step, is_readable, store, add, study) -> None:
    """Every second trial lacks the setting that only some configurations need. step: from one M-Recall to the next."""
    searches: dict[str, dict[str, object]] = {"loss": {}, "network": {}, "training": {}}
    for name, (domain, _) in SEARCHED.items():
        part, _, setting = name.partition(".")
        searches[part][setting] = domain
    config = study.config | {
        "networks": [{"name": "vsepp", "search": searches["network"]}],
        "losses": [{"name": "lmh"}, {"name": "lseh", "search": searches["loss"]}],
        "search": study.config["search"] | {"training": searches["training"]},
    }
    tried = {name: values for name, (_, values) in SEARCHED.items()} | ({} if is_readable else OF_OTHERS)
    made = [status for status, count in results.items() for _ in range(count)]
    for number, status in enumerate(made):
        recalls = [] if status in ("failed", None) else [10.0, 20.0 + step * number]
        add(number, recalls, status, **{name: values[number % len(values)] for name, values in tried.items()})
    attempts = store.attempts()
    for attempt in attempts[::2]:
        attempt.start.configuration.pop("loss.variant")
    explained = explain(replace(study, config=config if is_readable else {"study": "demo", "new": 1}), attempts)
    assert bool(explained.remark) != is_readable
    page = to_html(explained)
    has_marks = bool({"finished", "pruned", "failed"} & results.keys())
    assert all((f"<strong>{name}</strong>" in page) == has_marks for name in tried if name != "loss.variant")
    assert ("(log)" in page) == (is_readable and has_marks)
    sketches = [sketch(cell, name) for cell in explained.cells if cell.trials for name in cell.domains]
    assert any("x" in each.split()[1] for each in sketches) == (results == {"failed": 2})
