"""A search in the numbers, charts and words of its page."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from vsetune.config.spec.base import Choices, Range
from vsetune.records.events import StudyRecord
from vsetune.study.explaining import explain, findings, to_html
from vsetune.study.explaining.explained import has_levelled, seen_domain
from vsetune.study.explaining.search_charts import (
    MOST_PLOTTED,
    best_so_far,
    charts_of,
    front_points,
    leaders_of,
    place_of,
    plotted_trials,
)

HOSTILE = '<img src=x onerror="alert(1)">'


@pytest.fixture
def explained(searched, study):
    return explain(study, searched.attempts())


@pytest.fixture
def cell(explained):
    return next(cell for cell in explained.cells if cell.name == "vsepp.lseh")


def test_the_budget_is_split_by_outcome_without_confirming_runs(cell) -> None:
    account = cell.account
    assert dict(account.trials) == {"finished": 4, "stopped": 3, "failed": 1, "open": 1}
    assert dict(account.epochs) == {"finished": 24.0, "stopped": 9.0, "failed": 1.0, "open": 2.0}
    assert (account.given, account.spent, account.left, account.lost) == (48.0, 36.0, 12.0, 1.0)


def test_reasons_are_counted_by_the_rule_that_gave_them_with_examples(cell) -> None:
    found = [(ending.outcome, ending.kind, ending.count, ending.epoch) for ending in cell.endings]
    assert found == [("stopped", "patience", 2, 4.0), ("stopped", "asha", 1, 1.0), ("failed", "errors", 1, 1.0)]
    names = [name for name, _ in cell.endings[0].examples]
    assert names == ["vsepp.lseh-c004-s0", "vsepp.lseh-c005-s0"]
    assert "below the median 51.0" in cell.endings[0].examples[0][1]


def test_importances_learn_from_trials_that_finished_or_that_patience_saw_level_off(cell) -> None:
    assert [trial.name[-7:-3] for trial in cell.trials if has_levelled(trial)] == [f"c00{n}" for n in range(6)]
    assert cell.importances.trials == 6


def test_the_best_so_far_counts_the_epochs_of_all_trials_before_it(cell) -> None:
    steps = best_so_far(cell.trials)
    assert steps[:2] == [(1.0, 30.0), (2.0, 40.0)]
    assert steps[-1] == (17.0, 55.5)
    assert cell.winner.name == "vsepp.lseh-c002-s0"


def test_the_front_has_no_trial_that_breaks_a_constraint(cell) -> None:
    soon, late = (replace(cell.trials[0], name=name, breaks=()) for name in ("soon", "late"))
    soon = replace(soon, curve=((1.0, 40.0), (2.0, 50.0), (3.0, 51.0)))
    late = replace(late, curve=((1.0, 30.0), (2.0, 50.0), (3.0, 55.0), (4.0, 54.0)))
    barred = replace(soon, name="barred", curve=((1.0, 90.0),), breaks=("9 seconds per epoch, at most 8",))
    points = front_points([soon, late, barred])
    assert [(epoch, height, trial.name) for epoch, height, trial in points] == [
        (1.0, 40.0, "soon"), (2.0, 50.0, "soon"), (3.0, 55.0, "late"),
    ]
    assert [(each.trial.name, each.since, each.until) for each in leaders_of(points)] == [
        ("soon", 1.0, 2.0), ("late", 3.0, 3.0),
    ]


def test_the_objective_and_broken_constraints_are_shown(study, store, searched) -> None:
    search = study.config["search"] | {"objective": "area_under_curve", "constraints": {"seconds_per_epoch": 8}}
    attempts = [
        replace(each, summary={**each.summary, "seconds_per_epoch": 9.0, "constraint_excess": 0.125})
        if "c002-s0" in each.start.trial else each for each in store.attempts()
    ]
    page = to_html(explain(replace(study, config=study.config | {"search": search}), attempts))
    assert "searched for <strong>area_under_curve</strong>; at most <strong>seconds_per_epoch 8</strong>" in page
    assert "breaks a constraint and cannot be the winner" in page
    assert "9 seconds per epoch, at most 8" in page


def titles(chart: str) -> list[str]:
    """The words of its marks, in plotting order."""
    return re.findall("<title>(.*?)</title>", chart)


def test_a_slice_has_every_trial_with_the_winner_on_top_and_failures_at_the_lower_edge(cell) -> None:
    slices = charts_of(cell).slices
    assert slices.keys() == {"loss.margin", "training.learning_rate"}
    marks = titles(slices["loss.margin"])
    assert len(marks) == 9
    assert marks[-1].startswith("vsepp.lseh-c002-s0: M-Recall 55.50 % at epoch 5.00")
    edge = re.findall(r'<path transform="translate\([\d.]+,150\)"[^>]*><title>(.*?):', slices["loss.margin"])
    assert edge == ["vsepp.lseh-c006-s0", "vsepp.lseh-c007-s0"]


def test_every_trial_with_a_result_is_a_line_through_all_settings(cell) -> None:
    charts = charts_of(cell)
    lines = re.findall(r'<path d="(M[^"]*)"[^>]*><title>(.*?):', charts.parallel)
    assert [path.count("L") for path, _ in lines] == [2] * 8
    assert (lines[-1][1], charts.has_gaps) == ("vsepp.lseh-c002-s0", False)


def test_a_setting_that_a_trial_does_not_have_leaves_a_gap(store, add, study) -> None:
    for number in range(3):
        add(number, [40.0 + number])
    plain = store.attempts()
    del plain[1].start.configuration["loss.margin"]
    (cell,) = [cell for cell in explain(study, plain).cells if cell.trials]
    charts = charts_of(cell)
    assert charts.has_gaps
    assert [len(titles(each)) for each in charts.slices.values()] == [2, 3]


def test_too_many_trials_are_thinned_but_never_the_best(store, add, study) -> None:
    for number in range(MOST_PLOTTED + 50):
        add(number, [float(number % 97)], "pruned")
    (cell,) = [cell for cell in explain(study, store.attempts()).cells if cell.trials]
    plotted = plotted_trials(cell.trials)
    assert len(plotted) == MOST_PLOTTED
    assert {trial.name for trial in cell.trials if trial.best == 96.0} <= {trial.name for trial in plotted}
    assert f"{MOST_PLOTTED} of {MOST_PLOTTED + 50} trials are plotted" in to_html(explain(study, store.attempts()))


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


def test_a_study_that_cannot_be_read_here_is_explained_by_its_trials(searched) -> None:
    found = explain(StudyRecord("demo", "beef", {"study": "demo", "new_in_9": 1}), searched.attempts())
    assert "cannot be read here" in found.remark
    (cell,) = found.cells
    assert (cell.account.given, cell.account.left) == (None, None)
    assert len(charts_of(cell).slices) == 2
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
    assert not re.search(r"https?://|@import|url\(|<script", page)
    links = [attributes["href"] for tag, attributes in Page(page).tags if "href" in attributes]
    assert links == ["#cell-0"]
    text = " ".join(page.split())
    said = (
        "9 trials in 1 cell.", "No trial yet: vsepp.lmh.", "early stopping <strong>patience</strong>",
        "9 trials (4 finished, 3 stopped, 1 failed, 1 open) trained 36.0 epochs of 48.0 (not over); 12.0 are left; "
            "1,110 of 2,000 device-seconds.",
        "Best: M-Recall 55.5 % at epoch 5.00, by vsepp.lseh-c002-s0", "at least 10 trials",
        "1.0 epochs were lost to interruptions", "loss is not finite at step 140", "1 trial below",
    )
    assert [words for words in said if words not in text] == []


def test_a_search_that_trained_more_than_given_says_why_and_has_no_negative_rest(store, add, study) -> None:
    for number in range(8):
        add(number, [10, 20, 30, 40, 41, 42])
    add(8, [10, 11], "pruned", error="patience: 11.0 below 43.0")
    (cell,) = [cell for cell in explain(study, store.attempts()).cells if cell.trials]
    assert (cell.account.spent, cell.account.left) == (50.0, 0.0)
    text = " ".join(to_html(explain(study, store.attempts())).split())
    assert "trained 50.0 epochs of 48.0 (a begun trial is finished); 1,500 of 2,000 device-seconds." in text
    assert '>0.0 <span class="soft">a begun trial is finished</span></td>' in text


def test_names_and_errors_are_escaped(store, add, study) -> None:
    add(0, [40.0], "pruned", error=HOSTILE, **{HOSTILE: 1})
    page = to_html(explain(study, store.attempts()))
    assert "&lt;img src=x" in page
    assert "<img" not in page
    assert not [attributes for _, attributes in Page(page).tags if any(name.startswith("on") for name in attributes)]


def test_what_was_found_is_said_first_on_the_page_and_in_the_terminal(explained) -> None:
    said = findings(explained)
    assert said == [
        "vsepp.lseh: best M-Recall 55.5 % by trial 3 of 9, with loss.margin 0.14, training.learning_rate 0.000196.",
        "No trial yet: vsepp.lmh.",
    ]
    text = " ".join(to_html(explained).split())
    assert text.index(said[0]) < text.index(said[1]) < text.index("9 trials in 1 cell.")


def test_the_setting_that_matters_most_and_ends_of_ranges_are_among_what_was_found(store, add, study) -> None:
    for number in range(12):
        add(number, [40.0 + 2 * number], **({"training.learning_rate": 1e-2} if number == 11 else {}))
    said, _ = findings(explain(study, store.attempts()))
    assert re.search(r"; training\.learning_rate matters most \(\d+ %, of 12 trials\)", said)
    assert said.endswith("; training.learning_rate is at the high end of what was searched.")


def test_nothing_that_is_empty_is_on_the_page(store, add, study) -> None:
    """A trial without a result: no charts, no importances, no columns of outcomes that no trial had."""
    add(0, [], "failed", error="loss is not finite at step 140")
    page = to_html(explain(study, store.attempts()))
    assert findings(explain(study, store.attempts()))[0] == "vsepp.lseh: the only trial has no result that counts."
    headings = re.findall(r"<h[23][^>]*>(.*?)</h[23]>", page)
    assert headings == ["Where the epochs went", "vsepp.lseh", "Why trials ended early"]
    columns = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', page)
    assert columns[:4] == ["Cell", "Best M-Recall", "Failed", "Given"]
    assert "First setting" not in columns
    assert '<div class="pair">' not in page


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
@pytest.mark.parametrize("results", [
    {"finished": 12, "pruned": 2, "failed": 1}, {"finished": 1}, {"failed": 2}, {"pruned": 2}, {None: 1}, {},
], ids=["many", "one trial", "failed alone", "stopped alone", "running alone", "none"])
def test_every_kind_of_setting_and_of_result_has_a_page(results, is_readable, store, add, study) -> None:
    """Every second trial lacks the settings that only some configurations need."""
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
        recalls = [] if status in ("failed", None) else [10.0 + number, 20.0 + number % 5]
        add(number, recalls, status, **{name: values[number % len(values)] for name, values in tried.items()})
    attempts = store.attempts()
    for attempt in attempts[::2]:
        attempt.start.configuration.pop("loss.variant")
    explained = explain(replace(study, config=config if is_readable else {"study": "demo", "new": 1}), attempts)
    assert bool(explained.remark) != is_readable
    page = to_html(explained)
    has_result = bool({"finished", "pruned"} & results.keys())
    assert all((f"<strong>{name}</strong>" in page) == has_result for name in tried if name != "loss.variant")
    assert ("(log)" in page) == (is_readable and has_result)


def test_more_values_than_a_file_may_list_are_still_choices_of_a_study_that_cannot_be_read() -> None:
    assert len(seen_domain([f"word {number}" for number in range(300)]).choices) == 300
