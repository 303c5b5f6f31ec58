"""Looking at single trials: gallery, ensemble, show. The attempts are trained here, in this process, without Ray."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from vsetune.api.recorded import Trial
from vsetune.records.events import AttemptStart, StudyRecord, ValidationPoint
from vsetune.records.studies import Studies

SMALL = {"embedding_size": 16, "word_size": 8}
SGRAF = {**SMALL, "similarity_size": 8}


class Page(HTMLParser):
    """Tags of a page with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.text += data

    def having(self, tag: str, name: str) -> list[dict[str, str]]:
        return [attributes for found, attributes in self.tags if found == tag and name in attributes.get("class", "")]


def test_a_gallery_is_one_page_kept_with_the_run_that_asks_nothing_of_the_net(vsetune, record, home) -> None:
    run = record()
    said = vsetune("trial", "gallery", "tiny/vsepp.lmh-c000-s0", "--captions", "3", "--images", "2", "--top", "4")
    assert said.code == 0, said.err
    path = Path(said.out.strip())
    assert path == home / "galleries" / "tiny" / "vsepp.lmh-c000-s0-test.html"
    assert f"gallery/{path.name}" in said.err
    text = path.read_text()
    kept = Studies().fetch_artifact(run, f"gallery/{path.name}")
    assert kept.read_text() == text
    page = Page(text)
    assert not [tag for tag, _ in page.tags if tag in ("script", "link", "iframe", "img")]
    links = [value for _, attributes in page.tags for name, value in attributes.items() if name in ("href", "src")]
    assert links
    assert all(link.startswith(("data:image/", "#p")) for link in links)
    assert "http" not in text.replace("http-equiv", "")
    assert len(text) < 2_000_000
    # each picture stands in the page once, and everything that refers to one finds it
    stored = [attributes["id"] for tag, attributes in page.tags if tag == "image" and "id" in attributes]
    assert len(set(stored)) == len(stored)
    assert {link for link in links if link.startswith("#")} == {f"#{name}" for name in stored}
    assert len(page.having("article", "query")) >= 5
    assert len(page.having("image", "heat")) == 3


def test_the_gallery_of_a_network_with_attention_has_a_heat_map_for_every_word(vsetune, record, tmp_path) -> None:
    run = record({"name": "scan", "fixed": SMALL})
    output = tmp_path / "new" / "page.html"
    said = vsetune(
        "trial", "gallery", run, "--captions", "2", "--images", "0", "--split", "validation", "--output", str(output)
    )
    assert said.code == 0, said.err
    page = Page(output.read_text())
    assert "split validation" in page.text
    words = [a["aria-label"] for tag, a in page.tags if a.get("aria-label", "").startswith("attention of the word ")]
    assert words.count("attention of the word start") == 2
    assert len(page.having("image", "heat")) == len(words) + 2
    assert "scoring, pairs" in said.err  # 8 images x 40 captions


def test_the_draw_is_set_by_the_seed_and_other_numbers_come_from_the_flags(vsetune, record, tmp_path) -> None:
    run = record()

    def page(name: str, *words: str) -> str:
        said = vsetune("trial", "gallery", run, "--output", str(tmp_path / name), *words)
        assert said.code == 0, said.err
        return (tmp_path / name).read_text()

    assert page("a.html") == page("b.html")
    assert page("a.html", "--seed", "0") == page("b.html")
    assert page("c.html", "--seed", "1") != page("b.html")
    few = Page(page("d.html", "--captions", "0", "--images", "1", "--top", "1"))
    assert "Captions, and the images" not in few.text
    assert "Images, and the captions" in few.text


def test_captions_are_escaped(vsetune, record, home, tmp_path, monkeypatch) -> None:
    run = record()
    from vsetune.data.looking import show

    def nasty(words: list[str], text: str) -> list[str]:
        return ["<script>alert(1)</script>"] * len(words)

    monkeypatch.setattr(show, "with_case", nasty)
    monkeypatch.setattr(show, "read_some", lambda *args, read=show.read_some: map(_with_markup, read(*args)))
    said = vsetune("trial", "gallery", run, "--output", str(tmp_path / "page.html"))
    assert said.code == 0, said.err
    text = (tmp_path / "page.html").read_text()
    assert "<script" not in text
    assert "&lt;b onclick=" in text


def _with_markup(found: Any) -> Any:
    record, *rest = found
    captions = [f'<b onclick="x()">{text}</b>' for text in record.captions]
    return replace(record, captions=captions, name='"><script>alert(2)</script>'), *rest


def test_a_gallery_without_stored_images_shows_ids_and_says_so(vsetune, record, tmp_path) -> None:
    recipe = tmp_path / "bare.yaml"
    recipe.write_text(yaml.safe_dump({
        "name": "bare", "output": "data/bare", "source": {"layout": "scenes", "train": 24, "validation": 8, "test": 8},
        "features": {"extractor": "pixels", "width": 32}, "store_images": False,
    }))
    assert vsetune("data", "ingest", str(recipe)).code == 0
    run = record({"name": "scan", "fixed": SMALL}, data={"path": "data/bare"})
    said = vsetune("trial", "gallery", run, "--captions", "2", "--output", str(tmp_path / "page.html"))
    assert said.code == 0, said.err
    page = Page((tmp_path / "page.html").read_text())
    assert not [attributes for tag, attributes in page.tags if tag == "use"]
    assert page.having("image", "heat")


def test_a_gallery_of_what_is_not_there_is_refused(vsetune, record, home) -> None:
    run = record()
    for half in ("not a run", "tiny", "/x", "tiny/", f"{run}/2", "tiny/vsepp.lmh-c000-s0/last"):
        for command in ("gallery", "show"):
            assert vsetune("trial", command, half).refused(f"{half}: ", "STUDY/TRIAL/NUMBER")
    assert vsetune("trial", "show", "tiny/vsepp.lmh-c000-s0/2").refused("vsepp.lmh-c000-s0/2: ")
    for words, said in {
        ("tinny/vsepp.lmh-c000-s0",): ("study tinny", "tiny"),
        ("tiny/vsepp.lmh-c000-s1",): ("vsepp.lmh-c000-s0",),
        (run, "--split", "dev"): ("dev", "test, train, validation"),
        (run, "--device", "tpu"): ("device", "tpu"),
        (run, "--output", "/dev/null/x"): ("/dev/null/x",),
        (run, "--top", "0"): ("VSE-X001", "--top"),
    }.items():
        assert vsetune("trial", "gallery", *words).refused(*said)
    assert not (home / "galleries").exists()


def test_weights_or_data_that_are_gone_or_of_another_trial_are_named(vsetune, record, home, tmp_path) -> None:
    run = record()
    record({"name": "vsepp", "fixed": {**SMALL, "embedding_size": 24}}, name="wide")
    own, foreign = (next((home / "runs" / name).rglob("best.safetensors")) for name in ("tiny", "wide"))
    whole = own.read_bytes()
    shutil.copy(foreign, own)
    assert vsetune("trial", "gallery", run).refused(run, "network vsepp")
    own.write_bytes(whole)
    data = home / "data" / "scenes"
    data.rename(tmp_path / "moved")
    assert vsetune("trial", "gallery", run).refused(f"{data}: ")
    assert vsetune("data", "make-scenes", "--train", "30", "--validation", "8", "--test", "8").code == 0
    assert vsetune("trial", "gallery", run).refused(run, str(data), "fingerprint")
    shutil.rmtree(own.parent)
    assert vsetune("trial", "gallery", run).refused(run, str(own.parent))


def test_weights_that_are_cut_short_are_named_and_found_by_the_doctor(vsetune, record, home) -> None:
    run = record()
    weights = home / "runs" / "tiny" / "trials" / "vsepp.lmh-c000-s0" / "best.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-100])
    for command in (["gallery", run], ["ensemble", run, run]):
        assert vsetune("trial", *command).refused(run, str(weights))
    shown = vsetune("trial", "show", run, "--json")
    assert (shown.code, str(weights) in json.loads(shown.out)["checkpoint"]) == (0, True)
    assert json.loads(shown.out)["checkpoint"] != str(weights)
    said = vsetune("tracking", "doctor")
    assert (said.code, said.out.count("\n")) == (1, 1)
    assert f"attempt {run}: " in said.out
    assert str(weights) in said.out
    weights.write_bytes(whole)
    assert vsetune("tracking", "doctor").code == 0


def test_a_trial_that_has_not_finished_is_seen_by_its_run_only(vsetune, record) -> None:
    run = record(status="failed", error="loss is nan [/tmp/x] [red]y :warning:")
    assert vsetune("trial", "gallery", "tiny/vsepp.lmh-c000-s0").refused(run, "failed")
    assert vsetune("trial", "gallery", run, "--captions", "1").code == 0
    said = vsetune("trial", "show", "tiny/vsepp.lmh-c000-s0")
    assert said.code == 0
    assert "loss is nan [/tmp/x] [red]y :warning:" in said.out


def test_an_ensemble_is_printed_beside_its_members(vsetune, record, home) -> None:
    record({"name": "sgraf_saf", "fixed": SGRAF}, name="saf")
    record({"name": "sgraf_sgr", "fixed": SGRAF}, name="sgr")
    runs = ["saf/sgraf_saf.lmh-c000-s0", "sgr/sgraf_sgr.lmh-c000-s0"]
    said = vsetune("trial", "ensemble", *runs, "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["split"] == "test"
    assert [member["trial"] for member in found["members"]] == runs
    for run, member in zip(runs, found["members"], strict=True):
        summary = json.loads(vsetune("trial", "show", run, "--json").out)["summary"]
        assert member["m_recall"] == pytest.approx(summary["test_m_recall"])
        assert member["i2t_r5"] == pytest.approx(summary["test_i2t_r5"])
    assert 0 <= found["ensemble"]["m_recall"] <= 100
    said = vsetune("trial", "ensemble", *runs, "--split", "validation")
    assert "recalls on validation" in said.out
    assert re.search(r"ensemble( +\d+\.\d){7}", re.sub(r"[│┃]", "", said.out))


def test_members_that_do_not_belong_together_are_refused(vsetune, record) -> None:
    one = record({"name": "sgraf_saf", "fixed": SGRAF}, name="saf")
    two = record(name="cosine")
    assert vsetune("trial", "ensemble", one).refused("VSE-X002", "1 run")
    assert vsetune("trial", "ensemble", one, one).refused("VSE-X041", one)
    assert vsetune("trial", "ensemble", one, two).refused("VSE-X043", f"probability of attempt {one}")
    made = vsetune("data", "make-scenes", "--output", "data/more", "--train", "30", "--validation", "8", "--test", "8")
    assert made.code == 0
    three = record(name="more", data={"path": "data/more"})
    assert vsetune("trial", "ensemble", two, three).refused("VSE-X040", "trial ensemble: ", two, three)
    four = record(name="untested", data={
        "path": "data/scenes", "scenes": {"train": 24, "validation": 8, "test": 8}, "test_split": None,
    })
    assert vsetune("trial", "ensemble", two, four).refused("VSE-X042", f"test of attempt {two}", "--split")
    assert vsetune("trial", "ensemble", two, four, "--split", "validation").code == 0


def test_unbounded_scores_of_different_networks_are_averaged_with_a_warning(vsetune, record) -> None:
    scan = record({"name": "scan", "fixed": SMALL}, name="scan")
    gsmn = record({"name": "gsmn", "fixed": {**SMALL, "blocks": 2, "kernels": 2, "hidden_size": 4}}, name="gsmn")
    said = vsetune("trial", "ensemble", scan, gsmn)
    assert said.code == 0, said.err
    assert "warning VSE-X044: scores of gsmn, scan " in said.err
    back = record({"name": "scan", "fixed": {**SMALL, "direction": "image_to_text"}}, name="back")
    assert "warning" not in vsetune("trial", "ensemble", scan, back).err


@pytest.fixture
def searched(opened) -> None:
    """Two searches of one cell, the second better; the first trials of each lose. One cell has no result."""
    store = opened(StudyRecord("mine", "f", {"baseline": "lmh"}))
    for cell, configuration, seed, phase, best in (
        ("vsepp.lmh", 0, 0, "search", 30.0), ("vsepp.lmh", 1, 0, "search", 41.0), ("vsepp.lmh", 1, 1, "confirm", 39.0),
        ("vsepp.lmh", 2, 0, "search", 40.9), ("vsepp.lmh.r2", 0, 0, "search", 35.0),
        ("vsepp.lmh.r2", 10, 0, "search", 44.0), ("vsepp.lmh.r2", 10, 1, "confirm", 43.0),
        ("vsepp.lseh", 0, 0, "search", None),
    ):
        run = store.start_attempt(AttemptStart(
            study="mine", trial=f"{cell}-c{configuration:03}-s{seed}", cell=cell, network="vsepp",
            loss=cell.split(".")[1], number=1, seed=seed, phase=phase,
            configuration={"loss.margin": 0.1 + configuration}, resolved={"data": {"path": "data/scenes"}},
        ))
        if best is not None:
            store.record_points(run, [ValidationPoint(1, 1.0, 1, best, 1.0)])
        store.finish_attempt(run, "failed" if best is None else "finished", summary={}, error=None)


@pytest.mark.parametrize(("cell", "pick"), [
    ("vsepp.lmh", "vsepp.lmh.r2-c010-s0"), ("vsepp.lmh.r2", "vsepp.lmh.r2-c010-s0"),
])
def test_a_cell_stands_for_the_pick_of_the_board(cell: str, pick: str, vsetune, searched) -> None:
    said = vsetune("trial", "show", f"mine/{cell}", "--json")
    assert (said.code, json.loads(said.out)["trial"]) == (0, pick)
    assert f"mine/{cell}: the pick on the board is mine/{pick}" in said.err
    assert "the pick on the board" not in vsetune("trial", "show", f"mine/{pick}/1").err
    assert Trial(f"mine/{cell}").record.start.trial == pick
    assert vsetune("trial", "curves", f"mine/{cell[:-1]}").refused(f"did you mean {cell}?")
    assert vsetune("trial", "curves", "mine/vsepp.lseh").refused("VSE-S541", "no trial of this cell has a result")


def test_a_trial_is_shown_with_what_it_is_and_where_its_weights_are(vsetune, record, home) -> None:
    run = record()
    said = vsetune("trial", "show", "tiny/vsepp.lmh-c000-s0")
    assert said.code == 0
    folder = home / "runs" / "tiny" / "trials" / "vsepp.lmh-c000-s0"
    for word in ("vsepp.lmh", "finished", "loss.margin 0.2", "embedding_size 16", "epochs to best"):
        assert word in said.out
    assert "None" not in said.out
    assert "start_from null" in said.out
    assert re.search(r"\d\.\d{7}", said.out) is None, "more digits than anybody reads"
    shown = json.loads(vsetune("trial", "show", run, "--json").out)
    assert shown["checkpoint"] == str(folder / "best.safetensors")
    assert (shown["seed"], shown["status"], shown["error"]) == (0, "finished", None)
    assert shown["resolved"]["network"]["embedding_size"] == 16
    assert shown["curve"][-1] == [1.0, shown["summary"]["best_m_recall"]]
    lines = vsetune("trial", "curves", run).out.splitlines()
    header, last = lines[0].split(","), dict(zip(lines[0].split(","), lines[-1].split(","), strict=True))
    assert header[:5] == ["step", "epoch", "pairs_seen", "m_recall", "train_seconds"]
    assert {"train_loss", "i2t_r1", "learning_rate"} <= set(header)
    assert [float(last["epoch"]), float(last["m_recall"])] == shown["curve"][-1]
    (*_, point) = json.loads(vsetune("trial", "curves", run, "--json").out)
    assert point["metrics"]["i2t_r1"] == float(last["i2t_r1"])
    said = vsetune("trial", "curves", "tiny/vsepp.lmh-c000-s0", "--output", str(home / "curves.csv"))
    assert (said.code, said.out, (home / "curves.csv").read_text().splitlines()) == (0, "", lines)
    shutil.rmtree(folder)
    assert json.loads(vsetune("trial", "show", run, "--json").out)["checkpoint"] is None
    assert "none left" in vsetune("trial", "show", run).out


def test_pages_are_written_in_a_copied_home_and_the_original_stays_as_it_is(
    vsetune, record, home, tmp_path, monkeypatch
) -> None:
    run = record()
    copy = tmp_path / "copy"
    shutil.copytree(home, copy)
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    monkeypatch.setenv("VSETUNE_HOME", str(copy))
    for words in (("study", "explain", "tiny"), ("trial", "gallery", run), ("leaderboard", "export", "tiny")):
        said = vsetune(*words)
        assert said.code == 0, said
    for page in ("searches/tiny.html", "galleries/tiny/vsepp.lmh-c000-s0-test.html", "leaderboards/tiny.html"):
        assert (copy / page).read_text().startswith("<!")
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before
