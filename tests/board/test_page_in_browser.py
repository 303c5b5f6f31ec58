"""The page in Chromium: what its scripts do, and whether everybody can use it."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from importlib import metadata
from pathlib import Path

import headless_browser
import pytest
from board_attempts import NEW

from vsetune.board.building import build
from vsetune.board.columns import COLUMNS
from vsetune.board.export import TEXTS, to_csv, to_json, to_latex
from vsetune.board.many_studies import StudyAttempts, build_many
from vsetune.board.page import Live, to_html
from vsetune.board.shown_runs import ShownRuns

pytestmark = pytest.mark.skipif(headless_browser.PROGRAM is None, reason="no Chromium on this machine")

ORDER = "board.shown().map((row) => row.dataset.key.split('\\t').slice(1).join(' '))"


@pytest.fixture
def attempts(attempt):
    seeds = [
        attempt(loss, [number + by + seed / 10 for number in recalls], seed=seed, network=network)
        for network, by in (("vsepp", 0), ("vse_infinity", 2))
        for loss, recalls in (("lmh", (30, 42, 50, 55, 58, 60.2, 60.1, 59.8)), ("lseh", NEW), ("lsh", NEW[:3]))
        for seed in range(3)
    ]
    return [*seeds, attempt("lseh", [5], configuration=1, status="pruned")]


@pytest.fixture
def page(attempts, tmp_path):
    """Address of the page of a board of two networks, three losses and three seeds."""
    run = attempts[0]
    measured = {(each.start.study, each.start.trial): {"unique_negatives_images": each.curve} for each in attempts}
    ui = "http://mlflow.invalid/#"
    links = {"charts": f"{ui}/charts", "run": f"{ui}/runs/{{run}}", "file": f"{ui}/runs/{{run}}/artifacts/{{file}}"}
    in_mlflow = {each.attempt_id: f"run-{number}" for number, each in enumerate(attempts)}
    runs = ShownRuns(attempts, {run.attempt_id: ["gallery/test.html"]}, measured, {"demo": links}, in_mlflow)
    file = tmp_path / "board.html"
    file.write_text(to_html(build(attempts, baseline="lmh"), runs=runs), encoding="utf-8")
    return file.as_uri()


@pytest.fixture
def tab(browser, page):
    tab = browser.tab()
    tab.open(page)
    return tab


def drawn(tab, width=1280, *, dark=False) -> None:
    """Everything is in view and drawn."""
    tab.look(width=width, height=14000, dark=dark)
    tab.wait("document.querySelectorAll('figure').length > 0 && "
             "[...document.querySelectorAll('figure')].every((figure) => figure.querySelector('svg'))")


@pytest.mark.slow
def test_the_page_asks_for_nothing_and_complains_of_nothing(tab, page):
    drawn(tab)
    titles = tab.run("[...document.querySelectorAll('[data-charts]')].map((each) => [each.dataset.charts, "
                     "each.querySelectorAll('figure').length])")
    assert dict(titles) == {"curves": 2, "heights": 1, "tuning": 2, "negatives": 2, "seconds": 2}
    assert tab.run("document.querySelector('[data-charts=heights] figcaption .aside').textContent") == ""
    assert [address for address in tab.requested if not address.startswith(("blob:", "about:"))] == [page]
    assert tab.problems == []


def test_rows_are_sorted_by_keyboard_and_the_address_keeps_it(browser, tab, page):
    tab.run("document.querySelector('th[data-column=best_m_recall] button').focus()")
    tab.press("Enter")
    assert tab.run(ORDER)[0] == "vsepp lsh"
    tab.press("Enter")
    assert tab.run(ORDER)[0] == "vse_infinity lseh"
    assert tab.run("document.querySelector('th[aria-sort]').getAttribute('aria-sort')") == "descending"
    assert tab.run("document.activeElement.closest('th').dataset.column") == "best_m_recall"
    again = browser.tab()
    again.open(tab.run("location.href"))
    assert again.run(ORDER) == tab.run(ORDER)
    tab.press(" ")
    assert tab.run("location.href") == page


@pytest.mark.slow
def test_a_link_brings_back_what_was_chosen_and_a_skip_to_the_table_loses_nothing(browser, tab):
    for name, value in (("loss", "lseh"), ("network", "vsepp")):
        tab.run(f"document.querySelector('[data-filter={name}][data-value={value}]').click()")
    tab.run("document.getElementById('axis').value = 'best'; document.getElementById('axis').dispatchEvent("
            "new Event('change'))")
    again = browser.tab()
    again.open(tab.run("location.href"))
    assert again.run(ORDER) == ["vsepp lseh"]
    assert again.run("document.getElementById('shown').textContent") == "1 of 6 rows"
    assert again.run("document.getElementById('axis').value") == "best"
    assert again.run("document.querySelectorAll('[data-charts=curves] figure').length") == 1
    assert again.run("document.querySelectorAll('#configurations tbody tr:not([hidden])').length") == 1
    again.run("document.querySelector('.skip').focus()")
    again.press("Enter")
    again.wait("location.hash === '#tables'")
    assert again.run(ORDER) == ["vsepp lseh"]
    again.run("document.getElementById('show-all').click()")
    assert len(again.run(ORDER)) == 6


@pytest.mark.slow
def test_what_is_shown_can_be_saved_as_export_writes_it(browser, tab, attempts, several_page):
    board = build(attempts, baseline="lmh")
    assert tab.run("savedText('csv')") == to_csv(board)
    assert tab.run("savedText('tex')") == to_latex(board)
    tab.run("document.querySelector('[data-filter=loss][data-value=lseh]').click()")
    tab.run("document.querySelector('th[data-column=best_m_recall] button').click()")
    rows = list(csv.DictReader(io.StringIO(tab.run("savedText('csv')"))))
    assert [(row["network"], row["loss"]) for row in rows] == [("vsepp", "lseh"), ("vse_infinity", "lseh")]
    assert [row["network"] for row in json.loads(tab.run("savedText('json')"))["rows"]] == ["vsepp", "vse_infinity"]
    assert tab.run("savedText('md')").count("| lseh") == 2
    address, found = several_page
    tab = browser.tab()
    tab.open(address)
    for kind, texts in TEXTS.items():
        assert tab.run(f"savedText('{kind}')") == texts(found, COLUMNS).whole()
    assert json.loads(tab.run("savedText('json')")) == json.loads(to_json(found))
    tab.run("document.querySelector('[data-filter=data][data-value=flickr]').click()")
    assert [board["study"] for board in json.loads(tab.run("savedText('json')"))["boards"]] == ["first_flickr"]
    assert tab.run("savedText('tex')").count("\\begin{tabular}") == 1


@pytest.mark.slow
def test_runs_are_listed_when_asked_for_with_their_links(tab):
    assert tab.run("document.querySelectorAll('#runs tbody tr').length") == 0
    tab.run("document.querySelector('#runs summary').click()")
    tab.wait("document.querySelectorAll('#runs tbody tr').length === 19")
    links = tab.run("[...document.querySelectorAll('#runs tbody a')].slice(0, 2).map((a) => [a.textContent, a.href])")
    assert links == [["MLflow", f"http://mlflow.invalid/#/runs/run-{number}"] for number in range(2)]
    seen = tab.run("document.querySelector('#runs tbody tr [data-label=see]').textContent")
    assert seen == "MLflow, gallery test.html"  # a link where the page is served
    tab.run("page.runs.status = 'pruned'; page.changed()")
    assert tab.run("document.querySelectorAll('#runs tbody tr').length") == 1
    assert "status=pruned" in tab.run("location.hash")


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 360])
def test_names_as_long_as_they_may_be_stand_out_sideways_nowhere(browser, attempt, tmp_path, width):
    study, network, loss = "s" * 100, "w" * 100, "m" * 100
    runs = [
        attempt(name, [30, 42, 50 + seed], seed=seed, network=network) for name in ("lmh", loss) for seed in range(2)
    ]
    runs = [dataclasses.replace(run, start=dataclasses.replace(run.start, study=study)) for run in runs]
    live = Live("/studies/one/board.json", "1", [(study, "/studies/one"), ("two", "/studies/two")])
    several = build_many([
        StudyAttempts(name, "lmh", [attempt("lmh", dataset=name * 100), attempt("lseh", NEW, dataset=name * 100)])
        for name in ("a", "数")
    ])
    for text in (to_html(build(runs, baseline="lmh"), live=live), to_html(several)):
        file = tmp_path / "board.html"
        file.write_text(text, encoding="utf-8")
        tab = browser.tab(width=width)
        tab.open(file.as_uri())
        assert tab.run("document.documentElement.scrollWidth") == width
        best = "document.querySelector('.leaderboard td[data-label=\"best M-Recall\"]').getBoundingClientRect().right"
        assert tab.run(best) < width, "names break over lines, so that numbers stand beside them"


@pytest.mark.slow
def test_on_a_phone_nothing_stands_out_sideways_and_rows_are_cards(browser, page):
    tab = browser.tab(width=360, height=800)
    tab.open(page)
    drawn(tab, 360)
    tab.run("document.querySelector('#runs summary').click()")
    tab.wait("document.querySelectorAll('#runs tbody tr').length > 0")
    assert tab.run("document.documentElement.scrollWidth") == 360
    assert tab.run("[...document.querySelectorAll('.leaderboard td')].every((cell) => "
                   "cell.getBoundingClientRect().right <= 360)")
    tab.run("(() => { const sort = document.querySelector('[data-sort-by]'); sort.value = 'best_m_recall';"
            "sort.dispatchEvent(new Event('change', {bubbles: true})); })()")
    assert tab.run(ORDER)[0] == "vse_infinity lseh"


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_axe_finds_nothing_that_shuts_anybody_out(browser, page, several_page, dark, width):
    for address in (page, several_page[0]):
        tab = browser.tab(width=width, dark=dark)
        tab.open(address)
        drawn(tab, width, dark=dark)
        assert tab.run("document.documentElement.scrollWidth") == width
        tab.run("document.querySelector('figure summary').click(); "
                "document.querySelector('#runs summary')?.click()")
        tab.wait("document.querySelector('#runs') === null || "
                 "document.querySelectorAll('#runs tbody tr').length > 0")
        tab.run(axe_script() + "; true")
        found = tab.run("axe.run(document).then(({violations}) => violations.map(({id, nodes}) => "
                        "[id, nodes.length, nodes[0].html.slice(0, 200), nodes[0].failureSummary]))")
        assert (found, tab.problems) == ([], [])


def axe_script() -> str:
    files = metadata.files("axe-playwright-python") or []
    return Path(next(file for file in files if file.name == "axe.min.js").locate()).read_text(encoding="utf-8")


@pytest.mark.slow
def test_dark_and_light_can_be_chosen_and_charts_follow(tab):
    drawn(tab)
    looks = ("[getComputedStyle(document.body).backgroundColor, "
             "getComputedStyle(document.querySelector('figure .mark-line path')).stroke]")
    assert tab.run(looks) == ["rgb(255, 255, 255)", "rgb(27, 33, 41)"]
    tab.run("document.getElementById('theme').click()")
    assert tab.run("drawing.isDark()")
    assert tab.run(looks) == ["rgb(20, 24, 30)", "rgb(232, 236, 241)"]


@pytest.mark.slow
def test_a_point_under_the_pointer_is_told_in_words(tab):
    drawn(tab)
    dots = "[...document.querySelectorAll('figure .mark-symbol.role-mark path')]"
    x, y = tab.run(f"(() => {{ const box = {dots}[7].getBoundingClientRect();"
                   "return [box.x + box.width / 2, box.y + box.height / 2]; })()")
    tab.do("Input.dispatchMouseEvent", type="mouseMoved", x=x - 40, y=y)
    tab.do("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    tab.wait("document.querySelector('.vg-tooltip')?.textContent.includes('M-Recall')")
    told = tab.run("document.querySelector('.vg-tooltip').textContent")
    assert told == "lmh: M-Recall 59.9 % at epoch 4.00, 3 seeds from 59.8 to 60.0"


@pytest.fixture
def several_page(several, tmp_path):
    """Address of the page of three boards of several studies, and these boards."""
    found = build_many(several)
    file = tmp_path / "several.html"
    file.write_text(to_html(found), encoding="utf-8")
    return file.as_uri(), found


def test_every_board_has_its_own_order_and_the_address_keeps_them_all(browser, several_page):
    address, found = several_page
    tab = browser.tab()
    tab.open(address)
    order = "board.tables.map((each) => board.shownOf(each).map((row) => row.dataset.key.split('\\t')[2]).join())"
    before = tab.run(order)
    assert before == [",".join(row.loss for row in board.rows) for board in found.boards]
    tab.run("document.querySelector('[data-board=\"scenes.2\"] th[data-column=loss] button').click()")
    tab.run("document.querySelector('[data-board=flickr] th[data-column=loss] button').click()")
    tab.run("document.querySelector('[data-board=flickr] th[data-column=loss] button').click()")
    after = tab.run(order)
    assert after[0] == before[0]
    assert after[1] == ",".join(sorted(before[1].split(",")))
    assert after[2] == ",".join(sorted(before[2].split(","), reverse=True))
    again = browser.tab()
    again.open(tab.run("location.href"))
    assert again.run(order) == after
    again.run("document.querySelector('[data-filter=study][data-value=third]').click()")
    hidden = again.run("[...document.querySelectorAll('section.board')].map((each) => each.hidden)")
    assert hidden == [False, False, True]
