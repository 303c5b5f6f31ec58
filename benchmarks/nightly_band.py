"""How often a quiet sweep raises a false alarm, and how soon a real change is found, in simulated histories.

    PYTHONPATH=platform python benchmarks/nightly_band.py [--histories 100] [--nights 155] [--cells 12]

Every cell has all measures. Noise: independent nights, of which one in 100 is up to 15 % slower (`white`); clusters of
slow nights (`clusters`); nights like those before them, autocorrelation 0.6 (`ar1`). An alarm is a night with a
regression that was not reported the night before. A change begins after 14, 28 or 56 quiet nights.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from scipy.signal import lfilter

from vsetune.nightly.judging import Bools, Columns, Floats, see
from vsetune.nightly.night import MEASURES
from vsetune.nightly.nightly_spec import Tolerances

NOISE = {
    "best_m_recall": 1.0, "epochs_to_target": 0.3, "m_recall_area": 0.8, "step_time": 0.02, "step_wall_time": 0.022,
    "epoch_time": 0.03, "epoch_wall_time": 0.032, "pair_rate": 0.033, "peak_memory": 0.01, "start_time": 0.15,
    "data_wait": 0.02,
}
"""Standard deviations as judged: in the unit where linear, of the logarithm where ratio."""
SLOWED = [measure.name.endswith(("step_time", "epoch_time", "wall_time", "pair_rate")) for measure in MEASURES]
TOLERANCES = Tolerances()


def noise(kind: str, histories: int, nights: int, cells: int, rng: np.random.Generator) -> Floats:
    """(histories, cells, measures, nights). Half the variance is common to the cells of a measure; a cell's deviation
    is 0.7 to 1.4 times the usual one."""
    shape = (histories, cells, len(MEASURES), nights)
    common = rng.normal(size=(histories, 1, len(MEASURES), nights))
    normal = np.sqrt(0.5) * (common + rng.normal(size=shape))
    slower = np.zeros((histories, 1, 1, nights))
    if kind == "ar1":
        normal = lfilter([0.8], [1, -0.6], normal, axis=-1)
    elif kind == "white":
        slower = (rng.random(slower.shape) < 0.01) * rng.uniform(0, 0.15, size=slower.shape)
    else:
        for history in slower[:, 0, 0]:
            for begin in np.flatnonzero(rng.random(nights) < 1 / 20):
                history[begin:begin + rng.geometric(1 / 3)] = rng.uniform(0.05, 0.15)
    deviation = np.array([NOISE[measure.name] for measure in MEASURES])[None, None, :, None]
    scaled: Floats = normal * deviation * rng.uniform(0.7, 1.4, size=(histories, cells, len(MEASURES), 1))
    scaled[:, :, SLOWED] += slower
    return scaled


def regressions(values: Floats, tolerances: Tolerances = TOLERANCES) -> Bools:
    """Whether each night is reported as a regression. values: as of `noise`, as judged, around 0."""
    histories, cells, measures, nights = values.shape
    base = np.array([40.0 if measure.scale == "linear" else 0.0 for measure in MEASURES])
    flat = (values + base[None, None, :, None]).reshape(-1, nights)
    one = Columns.of(MEASURES, tolerances)
    number = np.arange(histories)[:, None, None] * measures + one.measure[None, None, :]
    times = histories * cells
    columns = Columns(
        np.tile(one.sign, times), np.tile(one.is_ratio, times), np.tile(one.smallest, times),
        np.broadcast_to(number, (histories, cells, measures)).ravel(),
    )
    alarmed, worse = (np.zeros(flat.shape, np.bool_) for _ in range(2))
    for night in range(nights):
        side = see(flat[:, : night + 1], alarmed[:, :night], columns, tolerances, cells * measures).side
        alarmed[:, night], worse[:, night] = side != 0, side > 0
    return worse.reshape(values.shape)


def false_alarms(worse: Bools, tolerances: Tolerances = TOLERANCES) -> Floats:
    """(histories,): alarms per judged night."""
    new = worse.copy()
    new[..., 1:] &= ~worse[..., :-1]
    counted: Floats = new[..., tolerances.baseline_nights:].any(axis=(1, 2)).mean(axis=1)
    return counted


def found_within(
    measure: str, change: float, cells: Sequence[int], values: Floats, *, deviations: bool = False, nights: int = 4
) -> list[float]:
    """Share of the histories in which the change of the last nights is reported within 1, 2, ... of them in one of the
    cells. change: as judged, towards worse; in the deviations of each cell where asked."""
    place = [each.name for each in MEASURES].index(measure)
    mine = values[:, list(cells), place]
    changed = values.copy()
    changed[:, list(cells), place, -nights:] += change * (mine.std(axis=-1, keepdims=True) if deviations else 1.0)
    seen = regressions(changed)[:, list(cells), place, -nights:].any(axis=1)
    return [float(seen[:, : n + 1].any(axis=1).mean()) for n in range(nights)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("histories", 100), ("nights", 155), ("cells", 12), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    rng = np.random.default_rng(asked.seed)
    for kind in ("white", "clusters", "ar1"):
        often = false_alarms(regressions(noise(kind, asked.histories, asked.nights, asked.cells, rng)))
        error = 1.96 * often.std() / np.sqrt(len(often))
        print(f"{kind}: one false alarm in {1 / max(often.mean(), 1e-9):.0f} nights "
              f"({often.mean():.4f} +- {error:.4f} a night)")
    for before in (14, 28, 56):
        quiet = noise("white", 2 * asked.histories, before + 4, asked.cells, rng)
        for text, measure, change in (
            ("an epoch takes half as much again", "epoch_time", np.log(1.5)),
            ("an epoch takes 20 % longer", "epoch_time", np.log(1.2)),
            ("best M-Recall drops by 3 deviations", "best_m_recall", 3.0),
        ):
            for where, cells in (("one cell", [0]), ("all cells", range(asked.cells))):
                shares = found_within(measure, change, cells, quiet, deviations=measure == "best_m_recall")
                said = ", ".join(f"{100 * share:.0f}" for share in shares)
                print(f"after {before} nights {text}, {where}: found within 1, 2, 3, 4 nights in {said} %")


if __name__ == "__main__":
    main()
