"""What goes wrong in an attempt, said with the place where it happened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from vsetune.errors import AttemptError, NumericError
from vsetune.training.pair_scores import LoggedProgress


@contextmanager
def scoring(split: str, *, where: str, step: int) -> Iterator[LoggedProgress]:
    """Says where a similarity was not finite, and how far a long scoring has come. where: study, trial and attempt."""
    try:
        yield LoggedProgress(f"{where} split {split}")
    except NumericError as error:
        raise NumericError(f"{where} step {step}: split {split}: {error}") from error


def out_of_memory(error: Exception, *, where: str, step: int) -> AttemptError:
    """The error of an attempt for which the GPU has too little memory, in one line."""
    reason = str(error).partition("\n")[0]
    failure = AttemptError(f"{where} step {step}: {reason} Lower training.batch_size or resources per GPU.")
    failure.kind = "memory"
    return failure
