"""Events and records of a small study, for tests of the log and of what is made of it."""

from __future__ import annotations

from vsetune.records.events import AttemptStart, Begun, Opened, StudyRecord, ValidationPoint, attempt_id

RECORD = StudyRecord("tiny", "f1", {"study": "tiny", "baseline": "lmh"}, {"data_fingerprint": "d1"})


def point(step: int, *, m_recall: float = 40.0, metrics: dict[str, float] | None = None) -> ValidationPoint:
    """A validation after `step` steps of a training of ten steps an epoch."""
    more = {"i2t_r1": 10.5, "device_seconds": 2.0 * step, "train_seconds": 1.5 * step}
    return ValidationPoint(step, step / 10, 8 * step, m_recall, 1.5 * step, more if metrics is None else metrics)


def start(trial: str = "vsepp.lmh-c000-s0", *, number: int = 1, loss: str = "lmh", study: str = "tiny") -> AttemptStart:
    """The first attempt of a trial."""
    return AttemptStart(
        study, trial, f"vsepp.{loss}", "vsepp", loss, number, 0, "search", {"loss.margin": 0.2},
        {"study": study, "trial": trial, "loss": {"name": loss, "margin": 0.2}, "data": {"path": "data/scenes"}},
        {"device": "cpu"}, {"data_fingerprint": "d1", "split": "validation"},
    )


def attempt_of(begun: Begun) -> str:
    """The name of the attempt that began."""
    return attempt_id(begun.start)


OPENED, BEGUN = Opened(RECORD, 1.0), Begun(start(), 3.0)
POINTS = (point(5, m_recall=38.25), point(10, m_recall=40.0))
