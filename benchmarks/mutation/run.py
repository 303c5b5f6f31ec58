"""Changes the code in one small place at a time and counts how often the tests notice.

    make mutation                                           (60 mutants of each area, about 15 minutes on two cores)
    MUTATION_SEED=1 MUTATION_COUNT=20 make mutation         other and fewer ones
    MUTATION_AREAS=losses,ledger make mutation              some areas only

Areas and their tests stand in `areas.py`, what is changed and what never in `mutants.py`, survivors that were judged in
`judged.toml`. Exit code 0: at least 90 % of each area killed, equivalent mutants left out; 1: fewer, or nothing to be
said because tests fail on unchanged code; 2: misused. Every mutant is in build/mutation/report.json.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

from rich.console import Console

from mutation.areas import AREAS, Area, nearest_first
from mutation.judged import read_judged
from mutation.mutants import Mutant, deal
from mutation.report import Report, Result
from mutation.testing import CannotTest, Examined, Tree, copied

_ROOT = Path(__file__).resolve().parents[2]
_PATIENCE, _START_S = 2.5, 20.0
"""A mutant may take so many times the seconds of the unchanged code, and so many more to start."""


class Mutation:
    """One run, on the sources as they were when it began. Each of the trees is used by one thread at a time."""

    def __init__(self, folder: Path, report: Report, *, processes: int) -> None:
        self._report, self._judged = report, read_judged()
        self._sources = copied(_ROOT, folder / "unchanged")
        self._all = [Tree(self._sources, folder / str(number)) for number in range(processes)]
        self._trees: SimpleQueue[Tree] = SimpleQueue()
        for tree in self._all:
            self._trees.put(tree)
        self._pool = ThreadPoolExecutor(processes)

    def run(self, area: Area, *, count: int, seed: int) -> None:
        """CannotTest if the area's tests fail on unchanged code."""
        files = area.source_files(self._sources)
        mutants = deal(self._sources, files, count=count, seed=seed)
        tests = area.test_files(self._sources)
        with self._tree() as tree:
            usual_s = tree.unchanged(nearest_first(tests, files[0], self._sources))
        limit_s = _PATIENCE * usual_s + _START_S
        self._report.say(
            f"{area.name}: {len(mutants)} mutants, {len(tests)} test files of {usual_s:.0f} s, limit {limit_s:.0f} s"
        )
        futures = {self._pool.submit(self._test, mutant, tests, limit_s): mutant for mutant in mutants}
        for future in as_completed(futures):
            mutant = futures[future]
            tested = future.result()
            judgement = self._judged.get(mutant.key) if tested.outcome == "survived" else None
            self._report.add(Result(area.name, mutant, tested, judgement))
            self._report.write()

    def close(self) -> None:
        """Waits for nothing: tests that still run are ended."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for tree in self._all:
            tree.stop()
        self._pool.shutdown()

    def _test(self, mutant: Mutant, tests: list[Path], limit_s: float) -> Examined:
        with self._tree() as tree:
            groups = nearest_first(tests, mutant.file, self._sources)
            return tree.test(mutant.file, mutant.code, groups, limit_s=limit_s)

    @contextmanager
    def _tree(self) -> Iterator[Tree]:
        tree = self._trees.get()
        try:
            yield tree
        finally:
            self._trees.put(tree)


def main() -> int:
    if sys.argv[1:]:
        print(__doc__)
        return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2
    count, seed = int(os.environ.get("MUTATION_COUNT", "60")), int(os.environ.get("MUTATION_SEED", "0"))
    names = os.environ.get("MUTATION_AREAS", ",".join(AREAS)).split(",")
    unknown = [name for name in names if name not in AREAS]
    if unknown:
        print(f"MUTATION_AREAS: {', '.join(unknown)} unknown, need some of {', '.join(AREAS)}", file=sys.stderr)
        return 2
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the copies and the tests go with us
    console = Console(width=None if sys.stdout.isatty() else 140)
    report = Report(console, _ROOT / "build" / "mutation" / "report.json", seed=seed)
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        mutation = Mutation(Path(folder), report, processes=int(os.environ.get("MUTATION_PROCESSES", "2")))
        try:
            for name in names:
                mutation.run(AREAS[name], count=count, seed=seed)
        except CannotTest as error:
            print(f"cannot go on: {error}", file=sys.stderr)
            return 1
        finally:
            mutation.close()
    report.show()
    return 0 if report.is_good() else 1


if __name__ == "__main__":
    sys.exit(main())
