"""The site as `make docs` makes it: its tutorials run, its links hold, and everybody can read it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from pathlib import Path
from threading import Thread

import headless_browser
import pytest
from written_pages import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built without a warning, of links too; a cell of a tutorial that raises ends it."""
    pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")
    made = tmp_path_factory.mktemp("site")
    where = {
        "VSETUNE_HOME": str(tmp_path_factory.mktemp("home")), "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT / 'docs'}",
        "NO_MKDOCS_2_WARNING": "1",
    }
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(made)]
    ran = subprocess.run(command, cwd=ROOT, env={**os.environ, **where}, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]
    return made


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    class Silent(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(site))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_tutorials_stand_there_with_their_output(site: Path) -> None:
    for tutorial, losses in (("first_study", ("lmh", "lseh", "info_nce")), ("own_loss", ("lmh", "info_nce", "smooth"))):
        page = (site / "tutorials" / f"{tutorial}.html").read_text(encoding="utf-8")
        assert "jp-RenderedSVG" in page  # the curves
        assert page.count("data:image/jpeg;base64,") >= 4  # the images that a sentence found
        images = re.findall(r"<img [^>]*data:image/[^>]*>", page)
        assert all(re.search(r'alt="[^"]+"', image) for image in images)
        assert all(f"<td>{loss}</td>" in page for loss in losses)
        assert "points M-Recall over" in page or "no loss is separated from" in page


def test_every_setting_loss_and_command_has_its_place(site: Path) -> None:
    for page, words in {
        "study_file": ("search.constraints", "repeats", "grace_epochs"), "losses": ("lseh", "semantic_temperature"),
        "networks": ("vse_infinity",), "commands": ("vsetune leaderboard export", "--columns"),
        "python": ("vsetune.open_study", "encode_captions"),
    }.items():
        text = (site / "reference" / f"{page}.html").read_text(encoding="utf-8")
        assert [word for word in words if word not in text] == []


@pytest.mark.skipif(headless_browser.PROGRAM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1400, 400])
def test_axe_finds_nothing_and_nothing_is_loaded_from_elsewhere(browser, address, width, dark) -> None:
    files = metadata.files("axe-playwright-python") or []
    axe = Path(next(file for file in files if file.name == "axe.min.js").locate()).read_text(encoding="utf-8")
    for page in ("index", "tutorials/first_study", "tutorials/own_loss", "reference/study_file", "statistics"):
        tab = browser.tab(width=width, dark=dark)
        tab.open(f"{address}{page}.html", until="true")
        tab.run("localStorage.clear()")  # the page before chose light or dark
        tab.open(f"{address}{page}.html", until="document.querySelector('[data-md-component=search][aria-label]')")
        assert tab.run("document.documentElement.scrollWidth") <= width
        tab.run(axe + "; true")
        found = tab.run("axe.run(document).then(({violations}) => violations.map(({id, nodes}) => "
                        "[id, nodes.length, nodes[0].html.slice(0, 200), nodes[0].failureSummary]))")
        assert (page, found, tab.problems) == (page, [], [])
        assert [each for each in tab.requested if not each.startswith((address, "data:", "about:", "blob:"))] == []
        browser.close_tab(tab)
