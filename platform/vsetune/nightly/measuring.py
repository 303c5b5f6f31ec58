"""The measures of one night, computed from the attempts of its study."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

from vsetune.metrics.curves import Curve, best_of_curve
from vsetune.metrics.efficiency import epochs_to_target
from vsetune.nightly.first_steps import FirstSteps
from vsetune.nightly.night import BY_NAME, MEASURES, STEP_TIMES, CellNight
from vsetune.records.state import Attempt

_OF_SUMMARY = {
    "epoch_time": "epoch_products", "epoch_wall_time": "epoch_wall_products", "pair_rate": "pairs_per_product",
    "peak_memory": "peak_memory_bytes", "start_time": "start_products",
}
_SHARED_ENVIRONMENT = ("processor", "machine", "device", "device_name", "cuda", "threads", "precision", "python")
_SHARED_PROTOCOL = (
    "split", "images", "captions", "tie_rule", "score_dtype", "ranking_version", "evaluation_protocols", "reranking",
    "validation_images",
)
_OWN_PACKAGE = "package_vsetune"


def cell_nights(
    attempts: Sequence[Attempt], cells: Iterable[str], *, seeds: int, target: float, first: FirstSteps,
) -> dict[str, CellNight]:
    """The measurements of each cell. seeds: trials per cell that should have finished. target: M-Recall in per cent."""
    by_cell: dict[str, dict[str, Attempt]] = {name: {} for name in cells}
    for record in sorted(attempts, key=lambda each: each.start.number):
        if record.start.cell in by_cell:
            by_cell[record.start.cell][record.start.trial] = record  # the last attempt continues the earlier ones
    return {
        name: _cell_night(list(trials.values()), seeds=seeds, target=target, name=name, first=first)
        for name, trials in by_cell.items()
    }


def unmeasured(name: str, cell: CellNight, first: FirstSteps, measures: Iterable[str] = BY_NAME) -> Iterator[str]:
    """A line for each measurement that is missing of a cell. measures: names of those that should be there."""
    if cell.trouble is not None:
        yield f"{name}: {cell.trouble}"
    else:
        missing = [measure for measure in measures if measure not in cell.values]
        if missing:
            yield f"{name}: no finite {', '.join(missing)}"
    if "problem" in first.get(name, {}):
        yield f"{name}: first losses: {first[name]['problem']}"
    elif any(not math.isfinite(loss) for loss in cell.first_losses):
        yield f"{name}: first losses: not all are finite"


def conditions_of(attempts: Sequence[Attempt]) -> dict[str, str]:
    """Conditions of the results besides code and settings, as the workers reported them, by name; empty without
    attempts.

    Where nodes differ, all values are joined, so that another mix of machines is another condition.
    """
    found: dict[str, set[str]] = {}
    for record in attempts:
        for name, value in _conditions(record).items():
            found.setdefault(name, set()).add(value)
    return {name: " | ".join(sorted(values)) for name, values in sorted(found.items())}


def _conditions(record: Attempt) -> dict[str, str]:
    environment, protocol = record.start.environment, record.start.protocol
    packages = {name: value for name, value in environment.items() if name.startswith("package_")}
    packages.pop(_OWN_PACKAGE, None)  # the revision identifies the code
    shared = {name: environment[name] for name in _SHARED_ENVIRONMENT if name in environment}
    data = {"data": str(protocol["data_fingerprint"])} if "data_fingerprint" in protocol else {}
    return shared | packages | data | {
        f"protocol.{name}": str(protocol[name]) for name in _SHARED_PROTOCOL if name in protocol
    }


def _cell_night(
    trials: Sequence[Attempt], *, seeds: int, target: float, name: str, first: FirstSteps
) -> CellNight:
    finished = [record for record in trials if record.status == "finished" and record.curve]
    taken = [_values(record, target) for record in finished]
    values = {}
    for measure in MEASURES:
        found = [value[measure.name] for value in taken if measure.name in value]
        if found and len(found) == len(taken) and all(map(math.isfinite, found)):
            values[measure.name] = statistics.fmean(found)
    steps, trouble = first.get(name, {}), _trouble(trials, len(finished), seeds)
    values |= {each: steps[each] for each in STEP_TIMES if math.isfinite(steps.get(each, math.nan))}
    return CellNight(values, tuple(steps.get("losses", ())), trouble, steps.get("recalls", {}))


def _trouble(trials: Sequence[Attempt], finished: int, seeds: int) -> str | None:
    if finished == seeds:
        return None
    errors = [record.error for record in trials if record.status != "finished" and record.error]
    because = f": {errors[0]}" if errors else ""
    return f"{finished} of {seeds} trials finished{because}"


def _values(record: Attempt, target: float) -> dict[str, float]:
    """The available measures of one finished trial."""
    curve, summary = record.curve, record.summary
    values = {
        "best_m_recall": best_of_curve(curve).m_recall,
        "epochs_to_target": epochs_to_target(curve, target).value,
        "m_recall_area": _mean_over(curve),
    }
    values |= {name: summary[key] for name, key in _OF_SUMMARY.items() if key in summary}
    return values | _data_wait(summary)


def _data_wait(summary: Mapping[str, float]) -> dict[str, float]:
    waited = summary.get("load_seconds", math.nan)
    worked = summary.get("train_seconds", math.nan)
    return {"data_wait": waited / (waited + worked)} if waited + worked > 0 else {}


def _mean_over(curve: Curve) -> float:
    """M-Recall, per cent, averaged over the epochs: each validation stands for the training since the one before."""
    before, area = 0.0, 0.0
    for epoch, m_recall in curve:
        area += (epoch - before) * m_recall
        before = epoch
    return area / before if before > 0 else math.nan
