"""Attempts made by hand, and boards of them."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from board_attempts import BASELINE, NEW, reaching
from written_fields import as_written

from vsetune.board.building import build
from vsetune.board.many_studies import StudyAttempts
from vsetune.records.events import AttemptStart, attempt_id
from vsetune.records.state import Attempt


@pytest.fixture(scope="session")
def attempt() -> Callable[..., Attempt]:
    def make(
        loss: str = "lmh", recalls: Sequence[float] = BASELINE, *, gap: float = 0.5, configuration: int = 0,
        seed: int = 0, number: int = 1, phase: str = "search", status: str = "finished", network: str = "vsepp",
        dataset: str = "scenes", summary: dict[str, float] | None = None,
        usd_per_hour: float | None = None, repeat: int = 1, error: str | None = None, **protocol: object,
    ) -> Attempt:
        curve = tuple((gap * (index + 1), float(recall)) for index, recall in enumerate(recalls))
        epochs = curve[-1][0] if curve else 0.0
        cell = f"{network}.{loss}" if repeat == 1 else f"{network}.{loss}.r{repeat}"
        start = AttemptStart(
            study="demo", trial=f"{dataset}.{cell}-c{configuration}-s{seed}", cell=cell,
            network=network, loss=loss, number=number, seed=seed, phase=phase,
            configuration={"loss.margin": 0.1 + 0.1 * configuration},
            resolved={"data": {"path": f"data/{dataset}"}},
            environment={} if usd_per_hour is None else {"usd_per_hour": str(usd_per_hour)},
            protocol={"images": 400, "validate_every_steps": 50, **protocol},
        )
        numbers = {"train_seconds": 20 * epochs, "device_seconds": 30 * epochs} if summary is None else summary
        return as_written(Attempt(attempt_id(start), start, status, curve, numbers, error))

    return make


@pytest.fixture
def pair(attempt) -> list[Attempt]:
    return [attempt("lmh"), attempt("lseh", NEW)]


@pytest.fixture
def several(attempt) -> list[StudyAttempts]:
    """Two studies of one data set under different batch sizes, a third with a loss for each of them and one for none,
    one of another data set, and one without attempts."""

    def study(name: str, *attempts: Attempt) -> StudyAttempts:
        return StudyAttempts(name, "lmh", [replace(each, start=replace(each.start, study=name)) for each in attempts])

    def seeds(loss: str, recalls: Sequence[float], **about: object) -> list[Attempt]:
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


def _decided(attempt) -> list[Attempt]:
    """Nine seeds: one loss is higher and sooner, one lower, one cannot be told, one sometimes never gets there, one was
    searched, one has two seeds, and one does not compare. Numbers over a thousand and below zero are among them."""
    base = {"heights": (60.0, 60.3, 60.1, 60.5, 60.2, 60.4, 60.1, 60.3, 60.2), "epochs": (8, 9, 8, 10, 9, 8, 9, 8, 9)}
    ahead = {"heights": [height + 1.1 + at / 90 for at, height in enumerate(base["heights"])], "epochs": (4, 5, 6) * 3}
    behind = {"heights": [height - 2 - at / 70 for at, height in enumerate(base["heights"])], "epochs": (6,) * 9}
    long = {"train_seconds": 54321.0, "device_seconds": 98765.4}
    return [
        *reaching(attempt, "lmh", **base), *reaching(attempt, "ahead", **ahead),
        *reaching(attempt, "equal", heights=(60.3, 60.1) * 4 + (60.4,), epochs=(8, 9, 8, 10, 9, 8, 9, 8, 9)),
        *reaching(attempt, "behind", **behind, summary=long),
        *reaching(attempt, "often", heights=(61, 61, 61, 61, 50, 61, 50, 61, 61),
                  epochs=(9, 10, 11, 11, 5, 11, 5, 10, 9)),
        *reaching(attempt, "few", heights=(61.0, 62.0), epochs=(7, 8)),
        *reaching(attempt, "tuned", **ahead), attempt("tuned", [5.0], configuration=1, status="pruned"),
        *reaching(attempt, "apart", heights=(70.0,) * 3, epochs=(3,) * 3, batch_unit="images"),
    ]


@pytest.fixture(scope="session")
def decided(attempt):
    """One network, of which every form of a sentence is said."""
    return build(_decided(attempt), baseline="lmh")


@pytest.fixture(scope="session")
def golden(attempt):
    """The same, with a network whose baseline rises to its end, one whose baseline collapsed, and one of another data
    set without a baseline; a name is hostile, trials failed, were killed, and were searched without being confirmed."""
    rising = [
        attempt(loss, [50, 55, 58 + seed / 7, 60 + seed / 3 + more], seed=seed, network="scan")
        for loss, more in (("lmh", 0.0), ('<b>&\'"_%$[bold]', 1.37)) for seed in range(5)
    ]
    collapsed = [
        attempt("lmh", [14.2, 14.9, 14.1], network="vsrn"), attempt("mine", NEW, network="vsrn", usd_per_hour=2.5),
        attempt("lsh", [], network="vsrn", status="failed"),
        attempt("lseh", [9, 8], network="vsrn", status="killed"),
        attempt("lseh", [9, 8, 70], network="vsrn", number=2, summary={"wasted_epochs": 0.25}),
    ]
    other = [
        attempt("lseh", [1, 2], dataset="flickr", data_fingerprint="f"),
        attempt("lseh", [50, 51], dataset="flickr", data_fingerprint="f", configuration=1),
    ]
    return build([*_decided(attempt), *rising, *collapsed, *other], baseline="lmh")
