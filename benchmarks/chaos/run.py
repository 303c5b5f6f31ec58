"""Sweeps of short trials under kills and outages, held against the same sweeps undisturbed.

    make chaos                                         (60 disturbances, about 25 minutes on two cores)
    CHAOS_SEED=1 CHAOS_COUNT=12 make chaos             other and fewer ones
    CHAOS_KINDS=driver_killed,s3_down make chaos       some kinds only
    CHAOS_HOME=s3 make chaos                           disturbed sweeps with their home on S3, on MLflow servers alone

Needs Linux, `pip install 'vsetune[chaos]'`, and the right to mount a tmpfs for full disks (left out without). Every
server listens on 127.0.0.1. Exit code 0: every check passed; 1: some failed, and the folder with all homes, outputs and
report.json is kept and named.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

from rich.console import Console

from chaos.commands import CommandFailed, Place, environment, record_problems, recorded, run_quick, start_study
from chaos.comparison import compare, doubts
from chaos.disturbances import KINDS
from chaos.disturbed import DisturbedSweep
from chaos.processes import Processes
from chaos.recorded import Recorded
from chaos.report import Report, SweepResult
from chaos.schedule import Card, deal, deck
from chaos.servers import BUCKET, Server, ServerDown, can_mount, s3_server, small_disk, tracking_server
from chaos.sweeps import Sweep, sweep, write_recipe

_SWEEPS = 4
_MOST_SWEEPS = 20
_DISK_MB = 80
_REFERENCE_LIMIT_S = 600.0


def after_sweep(unused: Sequence[Card], hand: Sequence[Card], left: Sequence[Card]) -> list[Card]:
    """What is still to be played. A hand may hold a card in another phase than it came with: its number tells."""
    dealt = {card.number for card in hand}
    return [card for card in unused if card.number not in dealt] + list(left)


class Chaos:
    """One run: servers, data, sweeps one after another."""

    def __init__(self, folder: Path, kinds: Sequence[str], *, count: int, seed: int, is_on_s3: bool) -> None:
        self._folder, self._seed, self._is_on_s3 = folder, seed, is_on_s3
        self._processes = Processes()
        self._has_mounts = can_mount(folder)
        self._has_silence_timeout = "worker_stopped" in kinds
        console = Console(width=None if sys.stdout.isatty() else 140)
        self.report = Report(console, folder / "report.json", planned=count, seed=seed)
        if not self._has_mounts:
            kinds = [kind for kind in kinds if KINDS[kind].needs != "small_disk"]
            self.report.say("no right to mount a tmpfs: no disk_full, the other kinds come more often instead")
        if is_on_s3:
            kinds = [kind for kind in kinds if KINDS[kind].needs != "file"]
        self._cards = deck(kinds, count, seed=seed)
        self._references: dict[str, Recorded] = {}
        self._s3, self._s3_env = s3_server(folder, self._processes)

    def run(self) -> None:
        with self._s3.running():
            recipe = write_recipe(self._folder)
            run_quick(self._environment(self._folder / "data-home", None), "data", "ingest", str(recipe))
            sweeps = self._sweeps(0, _SWEEPS)
            hands = deal(self._cards, sweeps)
            unused: list[Card] = []
            for each in sweeps:
                unused += self._one_sweep(each, hands[each.number])
            for further, following in pairwise(self._sweeps(_SWEEPS, _MOST_SWEEPS)):  # what those were too short for
                if not unused:
                    break
                hand = deal(unused, [further, following])[further.number]
                left = self._one_sweep(further, hand) if hand else []
                unused = after_sweep(unused, hand, left)
        self.report.show()
        self.report.write()

    def _sweeps(self, first: int, end: int) -> list[Sweep]:
        """Those with these numbers; with a home on S3, which takes no SQLite file, those on servers."""
        found = [sweep(number, seed=self._seed) for number in range(first, end)]
        return [each for each in found if each.store == "server" or not self._is_on_s3]

    def _one_sweep(self, each: Sweep, hand: list[Card]) -> list[Card]:
        """Undisturbed, then disturbed, then compared. Returns the cards that were not played."""
        began = time.monotonic()
        undisturbed = self._undisturbed(each)
        middle, trials = time.monotonic(), len(undisturbed.last())
        with ExitStack() as stack:
            folder = self._folder / each.name
            tracking: Server | None = None
            tracking_uri, database = None, folder / "home" / "mlflow.db"
            (folder / "logs").mkdir(parents=True)
            if each.store == "server":
                tracking, tracking_uri, database = tracking_server(folder, self._processes)
                stack.enter_context(tracking.running())
            if self._has_mounts:
                stack.enter_context(small_disk(folder / "home", megabytes=_DISK_MB))
                stack.callback(_keep, folder / "home", folder / "home-kept")
            remote = f"s3://{BUCKET}/homes/{each.name}" if self._is_on_s3 else None
            place = self._place(each, folder, tracking_uri, database, remote=remote)
            disturbed = DisturbedSweep(
                each, place, hand, trials=trials, s3=self._s3, tracking=tracking, processes=self._processes,
                report=self.report,
            )
            disturbed.run()
            result = SweepResult(
                each.name, trials, disturbed.rounds, middle - began, time.monotonic() - middle, disturbed.problems
            )
            self._compare(each, place, undisturbed, result)
        return disturbed.unused

    def _undisturbed(self, each: Sweep) -> Recorded:
        """The study as it should be, in a folder, on a SQLite file; run once. CommandFailed if that fails."""
        if each.study_name not in self._references:
            self._references[each.study_name] = self._reference(each)
        return self._references[each.study_name]

    def _reference(self, each: Sweep) -> Recorded:
        folder = self._folder / f"{each.study_name}_undisturbed"
        (folder / "logs").mkdir(parents=True)
        place = self._place(each, folder, None, folder / "home" / "mlflow.db")
        driver = start_study(place, 0, self._processes)
        try:
            code = driver.wait(timeout=_REFERENCE_LIMIT_S)
        except subprocess.TimeoutExpired:
            code = -9
        finally:
            self._processes.end_drivers()
        if code != 0:
            raise CommandFailed(f"{each.name}: exit code {code} undisturbed; see {place.stderr(0)}")
        found = recorded(place, each)
        problems = doubts(found, fewest=each.fewest_trials)
        if problems:
            raise CommandFailed(f"{each.name}: nothing to compare with, undisturbed: {'; '.join(problems)}")
        return found

    def _compare(self, each: Sweep, place: Place, undisturbed: Recorded, result: SweepResult) -> None:
        try:
            result.findings = compare(undisturbed, recorded(place, each))
            result.problems += record_problems(place, each)
        except CommandFailed as error:
            result.problems.append(str(error))
        self.report.finish_sweep(result)

    def _place(
        self, each: Sweep, folder: Path, tracking_uri: str | None, database: Path, *, remote: str | None = None
    ) -> Place:
        home = folder / "home"
        home.mkdir(exist_ok=True)
        study_file = each.write(folder, has_silence_timeout=self._has_silence_timeout)
        return Place(
            home, folder / "logs", study_file, self._environment(home, tracking_uri, remote=remote),
            tracking_uri or f"sqlite:///{database}", database,
        )

    def _environment(self, home: Path, tracking_uri: str | None, *, remote: str | None = None) -> dict[str, str]:
        return environment(home, self._s3_env, tracking_uri, self._folder / "ray", remote=remote)


def main() -> int:
    count, seed = int(os.environ.get("CHAOS_COUNT", "60")), int(os.environ.get("CHAOS_SEED", "0"))
    kinds = os.environ.get("CHAOS_KINDS", ",".join(KINDS)).split(",")
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        print(f"CHAOS_KINDS: {', '.join(unknown)} unknown, need some of {', '.join(KINDS)}", file=sys.stderr)
        return 2
    home = os.environ.get("CHAOS_HOME", "folder")
    if home not in ("folder", "s3"):
        print(f"CHAOS_HOME: got {home}, need folder or s3", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers, mounts and drivers go with us
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    print(f"{count} disturbances, seed {seed}; working in {folder}", flush=True)
    chaos = Chaos(folder, kinds, count=count, seed=seed, is_on_s3=home == "s3")
    try:
        chaos.run()
    except (CommandFailed, ServerDown) as error:  # not what was to be tested: nothing can be said
        print(f"cannot go on: {error}\nhomes and outputs are kept in {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder / "ray", ignore_errors=True)
    if chaos.report.is_good:
        shutil.rmtree(folder)
        return 0
    print(f"homes, outputs and report.json are kept in {folder}")
    return 1


def _keep(home: Path, copy: Path) -> None:
    """The small disk is gone with its mount; what it held is kept for looking into."""
    shutil.copytree(home, copy, dirs_exist_ok=True)


if __name__ == "__main__":
    sys.exit(main())
