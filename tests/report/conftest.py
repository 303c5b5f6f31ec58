"""Attempts made by hand. The two curves are the worked example of the definition of Difference."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from written_fields import as_written

from vsetune.records.events import AttemptRecord, AttemptStart, attempt_id
from vsetune.report.many_studies import StudyAttempts

BASELINE = (30, 42, 50, 55, 58, 60.2, 60.1, 59.8)
NEW = (38, 52, 59, 60.2, 61, 61.5, 61.2, 61.0)


@pytest.fixture
def attempt() -> Callable[..., AttemptRecord]:
    def make(
        loss: str = "lmh", recalls: Sequence[float] = BASELINE, *, gap: float = 0.5, configuration: int = 0,
        seed: int = 0, number: int = 1, phase: str = "search", status: str = "finished", network: str = "vsepp",
        dataset: str = "scenes", summary: dict[str, float] | None = None,
        usd_per_hour: float | None = None, **protocol: object,
    ) -> AttemptRecord:
        curve = tuple((gap * (index + 1), float(recall)) for index, recall in enumerate(recalls))
        epochs = curve[-1][0] if curve else 0.0
        start = AttemptStart(
            study="demo", trial=f"{dataset}.{network}.{loss}-c{configuration}-s{seed}", cell=f"{network}.{loss}",
            network=network, loss=loss, number=number, seed=seed, phase=phase,
            configuration={"loss.margin": 0.1 + 0.1 * configuration},
            resolved={"data": {"path": f"data/{dataset}"}},
            environment={} if usd_per_hour is None else {"usd_per_hour": str(usd_per_hour)},
            protocol={"images": 400, "validate_every_steps": 50, **protocol},
        )
        numbers = {"train_seconds": 20 * epochs, "device_seconds": 30 * epochs} if summary is None else summary
        return as_written(AttemptRecord(attempt_id(start), start, status, curve, numbers, None))

    return make


@pytest.fixture
def pair(attempt) -> list[AttemptRecord]:
    return [attempt("lmh"), attempt("lseh", NEW)]


@pytest.fixture
def several(attempt) -> list[StudyAttempts]:
    """Two studies of one data set under different batch sizes, a third with a loss for each of them and one for none,
    one of another data set, and one without attempts."""

    def study(name: str, *attempts: AttemptRecord) -> StudyAttempts:
        return StudyAttempts(name, "lmh", [replace(each, start=replace(each.start, study=name)) for each in attempts])

    def seeds(loss: str, recalls: Sequence[float], **about: object) -> list[AttemptRecord]:
        return [
            attempt(loss, [recall + seed / 10 for recall in recalls], seed=seed, phase="confirm", **about)
            for seed in (1, 2)
        ]

    falling = [40, 50, 60, 58, 57]
    return [
        study("first", *seeds("lmh", BASELINE), *seeds("lseh", NEW)),
        study("second", *seeds("lmh", BASELINE, batch_size=64), *seeds("lseh", NEW, batch_size=64)),
        study("third", *seeds("lsh", NEW, batch_size=64), *seeds("top_f", NEW, batch_size=32)),
        study("first_flickr", *(each for loss in ("lmh", "lseh") for each in seeds(loss, falling, dataset="flickr"))),
        study("fourth"),
    ]
