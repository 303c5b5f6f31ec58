"""One simulated search of one cell: the driver's own code on a landscape, in virtual time."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ray.tune.schedulers import TrialScheduler

from simulation.landscapes import (
    TOP,
    Landscape,
    Surface,
    Vector,
    generator_of,
    validated_epochs,
)
from vsetune.board.selection import winner_of
from vsetune.config.spec.loading import parse_spec
from vsetune.config.study.cells import refusal, resolve_cells
from vsetune.config.study.study_spec import StudySpec
from vsetune.records.events import DIVERGED, StudyRecord
from vsetune.records.state import Attempt
from vsetune.records.writer import StudyWriter
from vsetune.study.ledger import StudyLedger
from vsetune.study.trainable import as_result
from vsetune.study.trials import PlannedTrial
from vsetune.study.tune_adapter import CellScheduler, record_report

NEAR = 0.5
"""Points of M-Recall by which a hit may be below the optimum."""
MISS_FACTOR = 2
"""A search without a hit counts as a hit after this many times its budget."""
_UNEVEN = 0.1
_STUDY = "simulation"


@dataclass(frozen=True)
class SimulationSettings:
    """Settings of a simulation. workers: trials at a time. epoch_seconds: of one epoch on average; those of a trial
    differ by up to 10 %. target: M-Recall, in per cent, to which epochs are counted; it is also the target of a study
    whose target is its baseline's best."""

    workers: int = 8
    epoch_seconds: float = 60.0
    target: float = 0.9 * TOP


@dataclass(frozen=True)
class SimulatedSearch:
    """Result of one search.

    pick, best_finished, best_pruned: true M-Recall of a whole training of the pick, of the truly best finished trial,
    and of the truly best pruned one; -inf if there is none. epochs_to_hit: epochs trained by all trials when the pick
    became truly near the optimum, and stayed so; None for a miss. epochs: trained by all trials in total.
    epochs_to_target: of a whole training of the pick, without noise; inf if it never reaches the target. seconds:
    virtual, until the last trial ended. top: M-Recall of the optimum, per cent.
    """

    landscape: str
    seed: int
    pick: float
    best_pruned: float
    epochs_to_hit: float | None
    epochs: float
    trials: int
    pruned: int
    failed: int
    seconds: float
    epochs_to_target: float = math.inf
    top: float = TOP
    best_finished: float = -math.inf

    @property
    def shortfall(self) -> float:
        """Points by which the pick is truly below the optimum; inf without a pick."""
        return self.top - self.pick

    @property
    def is_found(self) -> bool:
        """Whether a trial truly near the optimum has finished, even if noise prevented its pick."""
        return self.best_finished >= self.top - NEAR

    @property
    def is_costly(self) -> bool:
        """Whether a pruned trial was truly better than the pick, by more than NEAR."""
        return self.best_pruned > self.pick + NEAR


class _Watch:
    """Follows the pick of a search: the finished trial with the best objective, by the leaderboard's own rule."""

    def __init__(self, surface: Surface, progress: Vector) -> None:
        self._surface, self._progress = surface, progress
        self._pick: tuple[Attempt, ...] | None = None
        self.truth = self.best_finished = self.best_pruned = -math.inf
        self.configuration: Mapping[str, Any] | None = None
        """The pick's configuration; None while there is no pick."""
        self.epochs_to_hit: float | None = None

    def closed(self, trial: PlannedTrial, epochs: float) -> None:
        """Notes a trial that has ended. epochs: trained by all trials up to then."""
        if trial.status == "failed":
            return
        truth = self._surface.truth(trial.configuration, self._progress)
        if trial.status == "pruned":
            self.best_pruned = max(self.best_pruned, truth)
            return
        self.best_finished = max(self.best_finished, truth)
        attempts = trial.attempts
        winner = winner_of([attempts] if self._pick is None else [self._pick, attempts])
        if winner is not attempts[-1]:
            return
        self._pick, self.truth, self.configuration = attempts, truth, trial.configuration
        if truth < self._surface.top - NEAR:
            self.epochs_to_hit = None
        elif self.epochs_to_hit is None:
            self.epochs_to_hit = epochs


def simulate_search(
    study: StudySpec, landscape: Landscape, *, seed: int, settings: SimulationSettings
) -> SimulatedSearch:
    """Runs the search of one cell with a study's search, scheduler, budget and epochs, in virtual time.

    The cell is synthetic with the landscape's space. Its trials validate at the end of every epoch. The same arguments
    give the same result. Only the search is simulated, not confirmation with further seeds.
    """
    made = made_up_study(study, landscape, seed=seed, target=settings.target)
    (cell,) = resolve_cells(made, where=_STUDY)
    whole = float(cell.training["epochs"])
    surface, clock, writer = landscape.surface(seed), VirtualClock(), StudyWriter()
    writer.open_study(StudyRecord(made.study, made.fingerprint(), made.to_plain()), resume=False)
    ledger = StudyLedger(
        made, [cell], writer, refuses=lambda _, configuration: refusal(made, cell, configuration), clock=clock
    )
    ledger.places = settings.workers
    epochs = validated_epochs(whole)
    progress = epochs / whole
    watch = _Watch(surface, progress)

    def course_of(planned: PlannedTrial) -> Course:
        chance = generator_of(f"{landscape.name}/{seed}/{planned.number}")
        reported = surface.training_of(planned.configuration, progress, chance)
        pace = settings.epoch_seconds * chance.uniform(1 - _UNEVEN, 1 + _UNEVEN)
        return Course(_until_divergence(epochs.tolist(), reported.tolist()), pace)

    scheduler = CellScheduler(
        made.scheduler, epochs={cell.name: whole}, target_of=ledger.target_of
    )
    cluster = VirtualCluster(
        ledger, scheduler, course_of, workers=settings.workers, clock=clock,
        on_closed=lambda trial: watch.closed(trial, cluster.epochs),
    )
    cluster.run()
    statuses = [trial.status for trial in ledger.trials.values()]
    to_target = math.inf if watch.configuration is None else surface.epochs_to(
        watch.configuration, settings.target, whole
    )
    return SimulatedSearch(
        landscape.name, seed, pick=watch.truth, best_pruned=watch.best_pruned, epochs_to_hit=watch.epochs_to_hit,
        epochs=cluster.epochs, trials=len(statuses), pruned=statuses.count("pruned"), failed=statuses.count("failed"),
        seconds=clock.now, epochs_to_target=to_target, top=surface.top,
        best_finished=watch.best_finished,
    )


def made_up_study(
    study: StudySpec, landscape: Landscape, *, seed: int, target: float = SimulationSettings.target
) -> StudySpec:
    """A study of one synthetic cell with the landscape's space, and the search settings of `study`. target: M-Recall in
    per cent, which replaces the best of a baseline, because there is no baseline here."""
    plain = {name: domain.to_plain() for name, domain in landscape.space.items()}
    search = study.search.to_plain() | {"seed": (study.search.seed + seed) % 2**63, "repeats": 1}
    search["training"] = _within("training", plain)
    if search["target"] == "baseline":
        search["target"] = target
    return parse_spec(
        {
            "study": _STUDY, "data": {"path": "simulated"}, "networks": [{"name": "vsepp"}], "baseline": "lseh",
            "losses": [{"name": "lseh", "search": _within("loss", plain) or "none"}],
            "training": {"epochs": study.training.epochs}, "search": search,
            "scheduler": study.scheduler.to_plain(), "budget": study.budget.to_plain(),
        },
        StudySpec, where=_STUDY,
    )


def promised_epochs(study: StudySpec, settings: SimulationSettings) -> float:
    """Epochs that the search of a cell may train, to within half a trial."""
    limits = [study.budget.epochs_per_cell or study.search.configurations * study.training.epochs]
    if study.budget.device_seconds_per_cell is not None:
        limits.append(study.budget.device_seconds_per_cell / settings.epoch_seconds)
    return min(limits)


def _within(part: str, domains: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name.removeprefix(f"{part}."): domain for name, domain in domains.items() if name.startswith(f"{part}.")}


def _until_divergence(epochs: list[float], m_recalls: list[float]) -> list[tuple[float, float]]:
    """The points of a curve up to and including the first that is not finite."""
    last = next((number for number, value in enumerate(m_recalls) if not math.isfinite(value)), len(epochs))
    return list(zip(epochs, m_recalls, strict=True))[: last + 1]


class VirtualClock:
    """Seconds since the start of a simulation, advanced by the cluster. The ledger must use the same clock."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class Course:
    """A trial that is not stopped. points: (epoch, M-Recall) of every validation; NaN: it diverges there."""

    points: Sequence[tuple[float, float]]
    epoch_seconds: float


@dataclass
class _Running:
    """A trial on a worker. config: as in Tune's trial. reported: number of points reported so far."""

    name: str
    course: Course
    config: dict[str, Any]
    reported: int = 0

    @property
    def epochs_to_next(self) -> float:
        """Epochs from the last report, or the start, to the next report."""
        before = self.course.points[self.reported - 1][0] if self.reported else 0.0
        return self.course.points[self.reported][0] - before


class VirtualCluster:
    """A number of simulated workers, each with one trial of a ledger at a time.

    Reports come in the order of their virtual times; reports at equal times come in the order in which their training
    began. A free worker asks the ledger at once. epochs: trained so far, by all trials.
    """

    def __init__(
        self, ledger: StudyLedger, scheduler: CellScheduler, course_of: Callable[[PlannedTrial], Course], *,
        workers: int, clock: VirtualClock, on_closed: Callable[[PlannedTrial], None],
    ) -> None:
        """clock: that of the ledger. on_closed: called with every trial when it ends."""
        self._ledger, self._scheduler, self._course_of = ledger, scheduler, course_of
        self._free, self._clock, self._on_closed = workers, clock, on_closed
        self._due: list[tuple[float, int, _Running]] = []
        self._order = itertools.count()
        self.epochs = 0.0

    def run(self) -> None:
        """Runs until the ledger has nothing left to hand out and every trial has ended."""
        self._hand_out()
        while self._due:
            self._clock.now, _, running = heapq.heappop(self._due)
            self._report(running)
            if self._ledger.trials[running.name].is_closed:
                self._free += 1
                self._on_closed(self._ledger.trials[running.name])
                self._hand_out()
            else:
                self._await(running)

    def _hand_out(self) -> None:
        while self._free and isinstance(planned := self._ledger.next(), PlannedTrial):
            self._free -= 1
            config = {
                "trial": {"trial": planned.name, "cell": planned.spec.cell}, "phase": planned.phase,
            }
            record_report(
                self._ledger, planned.name,
                {"event": "opened", "number": 1, "environment": {}, "protocol": {}, "inherited": []},
            )
            self._await(_Running(planned.name, self._course_of(planned), config))

    def _await(self, running: _Running) -> None:
        seconds = running.epochs_to_next * running.course.epoch_seconds
        heapq.heappush(self._due, (self._clock.now + seconds, next(self._order), running))

    def _report(self, running: _Running) -> None:
        """Reports the next validation of a trial. As with Tune, the scheduler decides at every one but the last."""
        course = running.course
        epoch, m_recall = course.points[running.reported]
        self.epochs += running.epochs_to_next
        running.reported += 1
        seconds = epoch * course.epoch_seconds
        summary = {"epochs": epoch, "train_seconds": seconds, "device_seconds": seconds}
        if not math.isfinite(m_recall):
            error = f"{DIVERGED} M-Recall is not finite at epoch {epoch:g}"
            failure = {"event": "failed", "error": error, "summary": summary, "done": True}
            record_report(self._ledger, running.name, failure)
            return
        point = {
            "step": running.reported, "epoch": epoch, "pairs_seen": running.reported, "m_recall": m_recall,
            "train_seconds": seconds,
        }
        report: dict[str, Any] = {"event": "point", "point": point, "summary": summary}
        if running.reported == len(course.points):
            report |= {"done": True, "is_finished": True}
        elif self._stops(running, epoch, m_recall):
            report |= {"done": True}
        record_report(self._ledger, running.name, report, stopped_by=self._scheduler.reasons.get(running.name, ""))

    def _stops(self, running: _Running, epoch: float, m_recall: float) -> bool:
        result = as_result({"event": "point", "point": {"epoch": epoch, "m_recall": m_recall}})
        return self._scheduler.on_trial_result(None, running, result) == str(TrialScheduler.STOP)
