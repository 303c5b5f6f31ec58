"""How long a browser takes to open the page of a board with 10,000 attempts, from its file.

    python benchmarks/board_opening.py
    python benchmarks/board_opening.py --against REVISION     # beside the page of another revision

Prints medians of several openings, the two pages in turns, in milliseconds of the browser's own clock: until something
is painted, until the whole document is there, and until the charts in view are drawn. Needs Chromium, and git for
--against.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests" / "shared"))

LOSSES, NETWORKS, DATA, SEEDS, VALIDATIONS = 10, 5, 2, 5, 40
MARKS = {
    "painted": "performance.getEntriesByType('paint').find(({name}) => name === 'first-contentful-paint').startTime",
    "document": "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd",
}


def main(arguments: list[str] | None = None) -> int:
    """0 done, 1 no browser."""
    parser = argparse.ArgumentParser(description="Opens the page of a large board in Chromium.")
    parser.add_argument("--attempts", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--against", help="revision of this repository to compare with")
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.make:
        make_page(given.make, given.attempts)
        return 0
    import headless_browser

    if headless_browser.PROGRAM is None:
        print("board_opening: no Chromium on this machine", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        pages = {"now": made_by(ROOT, Path(folder) / "now.html", given.attempts)}
        if given.against:
            tree = tree_of(given.against, Path(folder) / "tree")
            pages[given.against] = made_by(tree, Path(folder) / "before.html", given.attempts)
        profile = Path(folder) / "profile"
        profile.mkdir()
        with headless_browser.headless_browser(profile) as browser:
            times = in_turns(browser, pages, given.rounds)
        report(pages, times, given.attempts)
    return 0


def in_turns(browser, pages: dict[str, Path], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Milliseconds by page and mark; the first opening of each warms the machine and is not counted."""
    times: dict[str, dict[str, list[float]]] = {name: {} for name in pages}
    for turn in range(rounds + 1):
        for name, page in pages.items():
            tab = browser.tab(width=1280, height=900)
            tab.open(page.as_uri(), until="performance.getEntriesByType('paint').length > 1")
            told = {mark: tab.run(script) for mark, script in MARKS.items()}
            if tab.run("typeof sections !== 'undefined'"):
                tab.wait("document.documentElement.dataset.ready === 'yes' && [...document.querySelectorAll('figure')]"
                         ".filter((figure) => figure.isInView).every((figure) => figure.querySelector('svg'))")
                told["charts in view"] = tab.run("performance.now()")
            if turn:
                for mark, value in told.items():
                    times[name].setdefault(mark, []).append(value)
            browser.close_tab(tab)
    return times


def report(pages: dict[str, Path], times: dict[str, dict[str, list[float]]], attempts: int) -> None:
    for name, of_page in times.items():
        shown = ", ".join(f"{mark} {statistics.median(values):.0f} ms" for mark, values in of_page.items())
        print(f"{name}: {attempts} attempts, {pages[name].stat().st_size / 1e6:.2f} MB, {shown}")
    if len(times) == 2:
        now, before = times.values()
        for mark in MARKS:
            print(f"{mark}: ratio {statistics.median(now[mark]) / statistics.median(before[mark]):.2f}")


def tree_of(revision: str, folder: Path) -> Path:
    packed = subprocess.run(["git", "archive", revision, "platform"], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def made_by(tree: Path, page: Path, attempts: int) -> Path:
    """The page as the code of a tree makes it."""
    path = os.pathsep.join([str(tree / "platform"), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, str(Path(__file__).resolve()), "--make", str(page), "--attempts", str(attempts)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": path})
    return page


def make_page(page: Path, attempts: int) -> None:
    """A hundred cells, searched, and confirmed over five seeds each."""
    from vsetune.board.building import build
    from vsetune.board.page import to_html

    records = made_up(attempts)
    board = build(records, baseline="loss_0")
    try:
        from vsetune.board.shown_runs import ShownRuns
    except ImportError:  # an older revision, whose page knows no runs
        page.write_text(to_html(board), encoding="utf-8")
        return
    mlflow = "http://127.0.0.1:5000/#/experiments/1/runs"
    links = {"charts": mlflow, "run": f"{mlflow}/{{run}}", "file": f"{mlflow}/{{run}}/artifacts/{{file}}"}
    runs = ShownRuns(records, links={"large": links})
    page.write_text(to_html(board, runs=runs), encoding="utf-8")


def made_up(attempts: int) -> list:
    from vsetune.records.events import AttemptStart
    from vsetune.records.state import Attempt

    cells = [(data, network, loss) for data in range(DATA) for network in range(NETWORKS) for loss in range(LOSSES)]
    records = []
    for index in range(attempts):
        (data, network, loss), turn = cells[index % len(cells)], index // len(cells)
        confirms = 0 < turn <= SEEDS
        height = 55 + loss / 3 + network + (turn * 37 % 11) / 10 + (2 if confirms or turn == 0 else 0)
        curve = tuple(
            (step / 4, height * (1 - 0.8 ** (step + loss / 5)) + (step * 7 + turn * 13) % 10 / 40)
            for step in range(1, VALIDATIONS + 1)
        )
        cell = f"network_{network}.loss_{loss}"
        start = AttemptStart(
            study="large", trial=f"data_{data}.{cell}-c{0 if confirms else turn:03}-s{turn if confirms else 0}",
            cell=cell, network=f"network_{network}", loss=f"loss_{loss}", number=1, seed=turn if confirms else 0,
            phase="confirm" if confirms else "search", configuration={"loss.margin": 0.1 + (0 if confirms else turn)},
            resolved={"data": {"path": f"data/data_{data}"}}, protocol={"images": 1000, "validate_every_steps": 50},
        )
        told = {"train_seconds": 1200.0 + turn, "device_seconds": 1500.0 + turn, "seconds_per_epoch": 120.0 + loss}
        records.append(Attempt(f"{index:032x}", start, "finished", curve, told))
    return records


if __name__ == "__main__":
    sys.exit(main())
