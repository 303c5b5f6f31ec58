"""How often a nightly report cries wolf, and how soon it finds a change, beside fixed thresholds that cry as often.

    PYTHONPATH=platform python benchmarks/nightly_power.py [FOLDER] [--noise clusters] [--histories 1000] [--nights 60]

FOLDER: a history of nights (`$VSETUNE_HOME/nightly/NAME`); whole nights of it are drawn again, centred per stream and
scaled by sqrt(n / (n - 1)). Without it the noise is imagined: white, in clusters of slow nights, or autocorrelated.
With --quiet-only nothing is planted. First HISTORIES quiet histories are judged: false alarms
are nights with a regression that was not told the night before. Then changes of many sizes are planted in night
`--planted`, in all cells or in one, and watched for 30 nights. The rivals see the same streams: a value further from
the mean of the baseline nights than (a) a multiple of the smallest change that matters, the same multiple everywhere,
or (b) a multiple of the baseline's standard deviation; the multiples are tuned to our rate of false alarms on the same
quiet histories. Takes about five minutes on one core for 100 streams.
"""

from __future__ import annotations

import argparse
import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
from nightly_noise import Noise, QuietNights, imagined, recorded
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from vsetune.nightly.judging.noise import Bools, Floats, Integers
from vsetune.nightly.judging.scores import Tolerance
from vsetune.nightly.judging.watch import Watch
from vsetune.nightly.night import Measure

BLOCK = 50
WATCHED = 30
POWER_HISTORIES = 200
RATIO_SIZES = (0.02, 0.05, 0.10, 0.20, 0.50)
LINEAR_SIZES = (0.5, 1.0, 2.0, 4.0)
"""Times the smallest change that matters."""
TOLERANCE = Tolerance()
BASELINE = TOLERANCE.baseline_nights
Units = Callable[[Floats], Floats]


def main() -> None:
    asked = arguments()
    rng = np.random.default_rng(asked.seed)
    quiet = recorded(asked.folder) if asked.folder else imagined(rng, asked.noise)
    console = Console(width=170)
    console.print(f"{quiet.source}: {len(quiet.of)} streams of {len(quiet.measures)} measures")
    with Progress(console=console, transient=True) as progress:
        histories = quiet.histories(asked.histories, asked.nights, rng)
        told = quiet_verdicts(quiet, histories, progress)
        false_alarms(console, quiet, told)
        if asked.quiet_only:
            return
        rate = new(told > 0)[:, BASELINE:].any(axis=2).mean()
        rivals = {name: (units, tuned(units(histories), rate)) for name, units in rival_units(quiet).items()}
        for name, (_, multiple) in rivals.items():
            console.print(f"fixed threshold at the same rate: {multiple:.2f} x {name}")
        rows = delays(quiet, asked.planted, min(asked.histories, POWER_HISTORIES), rng, rivals, progress)
    console.print(delay_table(rows, list(rivals), asked.planted))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--noise", choices=get_args(Noise), default="white", help="without a folder")
    parser.add_argument("--quiet-only", action="store_true", help="false alarms alone")
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--nights", type=int, default=60)
    parser.add_argument("--planted", type=int, default=20, help="quiet nights before a planted change")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def watching(quiet: QuietNights, histories: int) -> Watch:
    return Watch(quiet.streams, histories, false_alarms=1 / TOLERANCE.false_alarm_nights, baseline_nights=BASELINE)


def quiet_verdicts(quiet: QuietNights, histories: Floats, progress: Progress) -> Floats:
    """(histories, nights, streams): +1 regression, -1 improvement."""
    told = np.zeros(histories.shape, dtype=np.int8)
    task = progress.add_task("quiet histories", total=len(histories))
    for start in range(0, len(histories), BLOCK):
        block = histories[start:start + BLOCK]
        watch = watching(quiet, len(block))
        for night in range(block.shape[1]):
            told[start:start + BLOCK, night] = watch.night(block[:, night]).side
        progress.advance(task, len(block))
    return told


def new(told: Bools) -> Bools:
    """Told, and not the night before. (histories, nights, streams)."""
    first = told.copy()
    first[:, 1:] &= ~told[:, :-1]
    return first


def false_alarms(console: Console, quiet: QuietNights, told: Floats) -> None:
    """Per judged night, with 95 % intervals over histories."""
    nights = told.shape[1] - BASELINE

    def said(alarms: Bools) -> str:
        per_history = alarms[:, BASELINE:].any(axis=2).sum(axis=1)
        mean, error = per_history.mean() / nights, 1.96 * per_history.std() / math.sqrt(len(told)) / nights
        low, median, high = np.quantile(per_history, (0.025, 0.5, 0.975))
        once = f"one in {1 / mean:.0f} nights" if mean else "none"
        return (f"{mean:.4f} per night ({mean - error:.4f} to {mean + error:.4f}), {once}; in {nights} judged nights: "
                f"median {median:.0f}, 95 % of histories {low:.0f} to {high:.0f}")

    worse = new(told > 0)
    console.print(f"promised: {1 / TOLERANCE.false_alarm_nights:.4f} per night, over {len(told)} quiet histories")
    console.print(f"regressions told: {said(worse)}")
    console.print(f"regressions and improvements: {said(worse | new(told < 0))}")
    shares = [f"{measure.name} {worse[:, BASELINE:, quiet.of == number].any(axis=2).mean():.4f}"
              for number, measure in enumerate(quiet.measures)]
    console.print(f"by measure, per night: {', '.join(shares)}")


def rival_units(quiet: QuietNights) -> dict[str, Units]:
    """How far each value is from the mean of its baseline nights, in what a rival counts in; 0 in the baseline."""

    def away(histories: Floats) -> Floats:
        distance = histories - np.nanmean(histories[:, :BASELINE], axis=1, keepdims=True)
        distance[:, :BASELINE] = 0
        return np.nan_to_num(distance)

    def in_smallest_changes(histories: Floats) -> Floats:
        scaled: Floats = away(histories) / quiet.streams.smallest
        return scaled

    def in_deviations(histories: Floats) -> Floats:
        deviation = np.nanstd(histories[:, :BASELINE], axis=1, ddof=1, keepdims=True)
        scaled: Floats = away(histories) / np.maximum(np.nan_to_num(deviation), 1e-12)
        return scaled

    return {"smallest change": in_smallest_changes, "baseline deviation": in_deviations}


def tuned(distances: Floats, rate: float) -> float:
    """The multiple at which new alarms come as often as this per judged night, or just less."""
    low, high = 0.0, float(distances.max()) * 1.01
    for _ in range(30):
        middle = (low + high) / 2
        often = new(distances >= middle)[:, BASELINE:].any(axis=2).mean()
        low, high = (middle, high) if often > rate or middle < 0.05 else (low, middle)
    return high


def sizes(measure: Measure) -> list[tuple[str, float]]:
    """What to say and by how much values rise, as judged (towards worse)."""
    if measure.scale == "ratio":
        sign = 1 if measure.worse == "higher" else -1
        return [(f"{100 * math.expm1(sign * math.log1p(size)):+.0f} %", math.log1p(size)) for size in RATIO_SIZES]
    return [(f"{times * measure.smallest_change:g} {measure.unit}", times * measure.smallest_change)
            for times in LINEAR_SIZES]


def delays(
    quiet: QuietNights, planted: int, count: int, rng: np.random.Generator,
    rivals: dict[str, tuple[Units, float]], progress: Progress,
) -> list[tuple[str, str, str, list[Integers]]]:
    """(measure, size, where, nights until found: ours, then each rival's; WATCHED + 1 where not found)."""
    histories = quiet.histories(count, planted + WATCHED, rng)
    watch = watching(quiet, count)
    before = np.zeros((count, len(quiet.of)))
    for night in range(planted):
        before = watch.night(histories[:, night]).side
    rows = []
    task = progress.add_task("planted changes", total=2 * sum(len(sizes(measure)) for measure in quiet.measures))
    for number, measure in enumerate(quiet.measures):
        for text, size in sizes(measure):
            for where in ("all cells", "one cell"):
                shift = planted_shift(quiet, number, size, where)
                changed = histories.copy()
                changed[:, planted:] += shift
                seen, ours = copy.deepcopy(watch), np.zeros((count, WATCHED, len(quiet.of)), dtype=np.bool_)
                for night in range(WATCHED):
                    ours[:, night] = seen.night(changed[:, planted + night]).side > 0
                found = [first_night(ours[..., shift != 0], before[:, shift != 0] > 0)]
                for units, multiple in rivals.values():
                    told = units(changed)[..., shift != 0] >= multiple
                    found.append(first_night(told[:, planted:], told[:, planted - 1]))
                rows.append((measure.name, text, where, found))
                progress.advance(task)
    return rows


def planted_shift(quiet: QuietNights, number: int, size: float, where: str) -> Floats:
    """(streams,): the change of each, as judged; that of one cell moves the mean of all by its share."""
    mine, together = quiet.of == number, quiet.cell == -1
    if where == "all cells":
        return np.where(mine, size, 0.0)
    cells = np.flatnonzero(mine & ~together)
    shift = np.zeros(len(quiet.of))
    shift[cells[0]] = size
    shift[mine & together] = size / len(cells)
    return shift


def first_night(told: Bools, before: Bools) -> Integers:
    """(histories,): the first night on which one of the streams is told that was not told before; 1 is the first."""
    told = told & ~(np.logical_and.accumulate(told, axis=1) & before[:, None])
    any_stream = told.any(axis=2)
    return np.where(any_stream.any(axis=1), any_stream.argmax(axis=1) + 1, WATCHED + 1)


def delay_table(rows: list[tuple[str, str, str, list[Integers]]], rivals: list[str], planted: int) -> Table:
    table = Table(title=f"Nights until a change after {planted} quiet nights is told: median / 90 %, and the share "
                        "found within 1 / 3 / 7 nights")
    for title in ("measure", "change", "in", "ours", "", *(f"x {name}" for name in rivals), "mean delay, times ours"):
        table.add_column(title, no_wrap=True)
    for name, text, where, found in rows:
        means = [nights.mean() for nights in found]
        table.add_row(name, text, where, quantiles(found[0]), within(found[0]),
                      *(f"{quantiles(one)}   {within(one)}" for one in found[1:]),
                      " / ".join(f"{mean / means[0]:.1f}" for mean in means[1:]))
    return table


def quantiles(nights: Integers) -> str:
    found = np.quantile(nights, (0.5, 0.9))
    return " / ".join(f"{value:.0f}" if value <= WATCHED else f">{WATCHED}" for value in found)


def within(nights: Integers) -> str:
    return " / ".join(f"{100 * (nights <= limit).mean():.0f}" for limit in (1, 3, 7)) + " %"


if __name__ == "__main__":
    main()
