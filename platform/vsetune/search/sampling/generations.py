"""Generations of samplers that breed: which trials one was made of is noted in its first draw, so that a process that
goes on later makes the same of the same trials, however many have ended since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from optuna.trial import FrozenTrial

from vsetune.search.sampling.sampler import Notes
from vsetune.search.trial_history import NOTES, TrialHistory

_GENERATION, _TOLD = "generation", "told"


@dataclass(frozen=True)
class Generation:
    """number: from 0. told: numbers of the ended trials that it learnt from, none of them told to an earlier one.
    is_new: the next draw is its first. members: its draws so far."""

    number: int
    told: tuple[int, ...]
    is_new: bool = False
    members: list[FrozenTrial] = field(default_factory=list)

    @property
    def notes(self) -> Notes:
        """Of the next draw."""
        return {_GENERATION: self.number} | ({_TOLD: list(self.told)} if self.is_new else {})


def generations_of(history: TrialHistory, *, size: int) -> list[Generation]:
    """All so far, the last of them that of the next draw. A generation ends when `size` of its trials have; trials that
    end later are told to none. The first one learns from all that had ended before it began."""
    found: list[Generation] = []
    for trial in history:
        notes = trial.user_attrs.get(NOTES, {})
        if _GENERATION not in notes:
            continue
        if _TOLD in notes:
            found.append(Generation(int(notes[_GENERATION]), tuple(notes[_TOLD])))
        if found:
            found[-1].members.append(trial)
    if not found:
        return [Generation(0, _ended(history), is_new=True)]
    ended = _ended(found[-1].members)
    if len(ended) >= size:
        found.append(Generation(found[-1].number + 1, ended, is_new=True))
    return found


def _ended(trials: Sequence[FrozenTrial]) -> tuple[int, ...]:
    return tuple(trial.number for trial in trials if trial.state.is_finished())
